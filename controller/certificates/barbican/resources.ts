import { z } from 'zod'
import { KeyManagerAway } from './key-manager-away.js'

/** The answers of the key manager, as far as they are used. */
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

export const containerSchema = z.object({
  type: z.string(),
  secret_refs: z.array(z.object({ name: z.string().nullish(), secret_ref: z.string() })),
})

/** @throws KeyManagerAway for an answer that no key manager gives */
export function readAnswer<T extends z.ZodType>(schema: T, bytes: Buffer, path: string): z.output<T> {
  try {
    return schema.parse(JSON.parse(bytes.toString('utf8')))
  } catch {
    throw new KeyManagerAway(`what answered ${path} is no key manager`)
  }
}
