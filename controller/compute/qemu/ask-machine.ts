import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import * as z from 'zod'
import type { Evidence } from '../host/evidence.js'
import { openUnixSocket } from './unix-socket.js'

/** An emulated machine on a busy host takes seconds. */
const ANSWER_LIMIT_MS = 10_000
/** A compromised machine must not fill the controller's memory. */
const MAX_CHARACTERS = 256 * 1024

const number = z.int().nonnegative()
const answerSchema = z.object({
  question: z.string(),
  haproxy: z.array(z.object({ pid: number, parent: number, state: z.string().length(1) })),
  ports: z.array(z.int().min(1).max(65535)),
  tables: z.array(z.string().max(64)),
})

/**
 * Asks a virtual machine what it carries, over its second serial line (images/amphora/evidence.sh): that needs neither its
 * network nor its agent.
 * @param path the line's Unix socket
 * @returns null if it does not answer in time, or not as it should; that proves nothing
 */
export async function askMachine(path: string, limitMs = ANSWER_LIMIT_MS): Promise<Evidence | null> {
  try {
    const { socket, close } = openUnixSocket(path)
    return await ask(socket, limitMs).finally(close)
  } catch {
    return null
  }
}

function ask(socket: Socket, limitMs: number): Promise<Evidence | null> {
  const question = randomBytes(8).toString('hex')
  return new Promise(resolve => {
    const limit = setTimeout(() => end(null), limitMs)
    const end = (evidence: Evidence | null) => {
      clearTimeout(limit)
      resolve(evidence)
    }
    let said = ''
    socket.setEncoding('utf8')
    socket.on('data', (piece: string) => {
      said += piece
      const evidence = answerIn(said, question)
      if (evidence !== null || said.length > MAX_CHARACTERS) end(evidence)
    })
    socket.on('error', () => end(null))
    socket.on('close', () => end(null))
    socket.write(`${question}\n`)
  })
}

/** The answer to a question among the lines of a serial line; null if it is not there. Pure. */
export function answerIn(lines: string, question: string): Evidence | null {
  const [, line = ''] = new RegExp(`^(\\{"question":"${question}".*\\})\\r?\\n`, 'm').exec(lines) ?? []
  const answer = answerSchema.safeParse(parsed(line))
  if (!answer.success) return null
  const { haproxy, ports, tables } = answer.data
  return { haproxy, ports: ports.toSorted((a, b) => a - b), tables }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
