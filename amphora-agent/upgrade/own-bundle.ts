import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** The file that this agent was started from, which is all of it. */
export const ownProgram = (): string => process.argv[1] ?? ''

/** SHA-256 of the agent's own file, in hexadecimal. Read it at the start: the file may go once another agent runs. */
export const ownBundle = (): string => sha256Of(readFileSync(ownProgram()))

export const sha256Of = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')
