import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import * as z from 'zod'
import type { Evidence } from '../host/evidence.js'
import { openUnixSocket } from './unix-socket.js'

/** An emulated machine on a busy host takes seconds. */
const ANSWER_LIMIT_MS = 10_000
/** A compromised machine must neither fill the controller's memory nor keep it busy. An answer has some hundred. */
const MAX_CHARACTERS = 64 * 1024
const MAX_ENTRIES = 1024

const number = z.int().nonnegative()
const answerSchema = z.object({
  haproxy: z.array(z.object({ pid: number, parent: number, state: z.string().length(1) })).max(MAX_ENTRIES),
  // Without any, the list is cut short: sshd listens.
  ports: z.array(z.int().min(1).max(65535)).min(1).max(MAX_ENTRIES),
  tables: z.array(z.string().max(64)).max(MAX_ENTRIES),
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
    const read = createAnswerReader(question)
    socket.setEncoding('utf8')
    socket.on('data', (piece: string) => {
      const evidence = read(piece)
      if (evidence !== undefined) end(evidence)
    })
    socket.on('error', () => end(null))
    socket.on('close', () => end(null))
    socket.write(`${question}\n`)
  })
}

/**
 * Finds the answer to a question among the lines of a serial line. Each line is looked at once.
 * @returns a function that takes the next piece; its result is undefined as long as there is no answer, and null if there
 *   is none to wait for: the answer is not as it should be, or the machine says too much
 */
export function createAnswerReader(question: string): (piece: string) => Evidence | null | undefined {
  let characters = 0
  let rest = ''
  return piece => {
    characters += piece.length
    const [first = '', ...others] = piece.split('\n')
    const lines = [rest + first, ...others]
    rest = lines.pop() ?? ''
    const answer = lines.find(line => line.startsWith(`{"question":"${question}",`))
    if (answer !== undefined) return evidenceIn(answer)
    return characters > MAX_CHARACTERS ? null : undefined
  }
}

function evidenceIn(line: string): Evidence | null {
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
