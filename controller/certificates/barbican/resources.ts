import * as z from 'zod'
import { Unusable } from '../../../x509/material/material.js'
import type { Target } from '../../../x509/material/reference.js'
import { KeyManagerUnavailable } from './errors.js'

/** The key manager's answers: the fields that we use. */
export const aclSchema = z.object({
  read: z.object({ 'project-access': z.boolean().default(true), users: z.array(z.string()).default([]) }),
})

export const secretSchema = z.object({
  content_types: z
    .object({
      default: z
        .string()
        .regex(/^[\x20-\x7e]{1,255}$/)
        .optional(),
    })
    .nullish(),
})

const containerSchema = z.object({
  type: z.string(),
  secret_refs: z.array(z.object({ name: z.string().nullish(), secret_ref: z.string() })),
})

/** @throws KeyManagerUnavailable when a key manager cannot have answered this */
export function readAnswer<T extends z.ZodType>(schema: T, bytes: Buffer, path: string): z.output<T> {
  try {
    return schema.parse(JSON.parse(bytes.toString('utf8')))
  } catch {
    throw new KeyManagerUnavailable(`what answered ${path} is not a key manager`)
  }
}

/** The secrets of a certificate container by name. @throws Unusable, KeyManagerUnavailable */
export function partsIn(container: Buffer, path: string): ReadonlyMap<string, Target> {
  const { type, secret_refs: refs } = readAnswer(containerSchema, container, path)
  if (type !== 'certificate') throw new Unusable('it is not a container of type certificate')
  return new Map(refs.map(({ name, secret_ref }) => [name ?? '', partOf(secret_ref)]))
}

/** The secret that a container refers to. @throws KeyManagerUnavailable for an invalid reference, as the key manager wrote it */
function partOf(ref: string): Target {
  const id = /\/([0-9a-f-]{36})\/?$/i.exec(ref)?.[1]
  if (id === undefined) throw new KeyManagerUnavailable('a container refers to something other than a secret')
  return { kind: 'secrets', id: id.toLowerCase() }
}
