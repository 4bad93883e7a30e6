import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** The agent that this controller brings along. */
export type AgentBundle = {
  /** Of its file, in hexadecimal, as agents report theirs. */
  sha256: string
  content: Buffer
}

/** Reads a bundle. A process keeps what it has read: a later build may replace the file while the process runs. */
export function readAgentBundle(file: string): AgentBundle {
  const content = readFileSync(file)
  return { sha256: createHash('sha256').update(content).digest('hex'), content }
}
