import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { writePrivateFile } from '../../process/private-file.js'

/** What the state directory records of a program's place on a network. */
const attachmentSchema = z.object({
  name: z.string(),
  network: z.object({ id: z.string(), name: z.string(), mtu: z.number() }),
  portId: z.string(),
  /** With prefix lengths. */
  addresses: z.array(z.string()),
  /** Where the interface is: a namespace as `ip netns` names it, or that of a container's process. */
  place: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('namespace'), namespace: z.string(), created: z.boolean() }),
    z.object({
      kind: z.literal('process'),
      identity: z.object({ pid: z.number(), startTicks: z.number(), bootId: z.string() }),
    }),
  ]),
  interfaceName: z.string(),
  /** Whose port it is, as clouds.yaml names the user. */
  cloud: z.enum(['krater', 'krater-admin']),
})

export type AttachmentRecord = z.output<typeof attachmentSchema>

/** It names a file, a network namespace and a port. */
export const ATTACHMENT_NAME = /^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/

const directoryOf = (stateDirectory: string): string => join(stateDirectory, 'attachments')
const fileOf = (stateDirectory: string, name: string): string => join(directoryOf(stateDirectory), `${name}.json`)

export function saveAttachment(stateDirectory: string, record: AttachmentRecord): void {
  writePrivateFile(fileOf(stateDirectory, record.name), JSON.stringify(record))
}

/** @returns null if there is none of this name */
export function readAttachment(stateDirectory: string, name: string): AttachmentRecord | null {
  const file = fileOf(stateDirectory, name)
  return existsSync(file) ? attachmentSchema.parse(JSON.parse(readFileSync(file, 'utf8'))) : null
}

export function forgetAttachment(stateDirectory: string, name: string): void {
  rmSync(fileOf(stateDirectory, name), { force: true })
}

/** All attachments, by name. */
export function readAttachments(stateDirectory: string): AttachmentRecord[] {
  const directory = directoryOf(stateDirectory)
  if (!existsSync(directory)) return []
  return readdirSync(directory)
    .filter(file => file.endsWith('.json'))
    .sort()
    .flatMap(file => readAttachment(stateDirectory, file.slice(0, -'.json'.length)) ?? [])
}
