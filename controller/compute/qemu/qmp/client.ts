import type { Socket } from 'node:net'
import type * as z from 'zod'
import { openUnixSocket } from '../unix-socket.js'
import { createMessageReader, type QmpMessage, QmpProtocolError } from './messages.js'

/** QEMU refuses a command. `errorClass` is QMP's, such as DeviceNotFound. */
export class QmpRefused extends Error {
  override readonly name = 'QmpRefused'

  constructor(
    readonly command: string,
    readonly errorClass: string,
    readonly description: string,
  ) {
    super(`QEMU refuses ${command}: ${description}`)
  }
}

/** The monitor gives no answer: QEMU has ended, hangs, or talks to another client all the time. */
export class QmpUnreachable extends Error {
  override readonly name = 'QmpUnreachable'
}

export type QmpEvent = Extract<QmpMessage, { kind: 'event' }>

/** A connection to the monitor of a running QEMU. */
export type Qmp = {
  /** QEMU's version, such as 7.2.22. */
  version: string
  /**
   * Runs a command.
   * @throws QmpRefused, QmpUnreachable, QmpProtocolError
   */
  execute: <T>(
    command: string,
    options: { arguments?: Readonly<Record<string, unknown>>; answer: z.ZodType<T> },
  ) => Promise<T>
  /**
   * Waits for an event that comes after this call.
   * @returns null if it does not come within `limitMs`
   * @throws QmpUnreachable, QmpProtocolError
   */
  event: (isExpected: (event: QmpEvent) => boolean, limitMs: number) => Promise<QmpEvent | null>
}

/** QEMU serves one client at a time. Another process of the controller is finished before that. */
const GREETING_LIMIT_MS = 10_000
const ANSWER_LIMIT_MS = 10_000

/**
 * Connects to a QEMU's monitor, and disconnects when `use` is done.
 * @param path the monitor's Unix socket
 * @throws QmpUnreachable, QmpProtocolError, and what `use` throws
 */
export async function withQmp<T>(
  path: string,
  use: (qmp: Qmp) => Promise<T>,
  { greetingLimitMs = GREETING_LIMIT_MS }: { greetingLimitMs?: number } = {},
): Promise<T> {
  const { socket, close } = open(path)
  try {
    const conversation = createConversation(socket)
    const greeting = await conversation.next(message => message.kind === 'greeting', greetingLimitMs)
    if (greeting?.kind !== 'greeting') throw new QmpUnreachable('QEMU’s monitor does not answer.')
    await conversation.request('qmp_capabilities', {})
    return await use({
      version: greeting.version,
      execute: async (command, { arguments: words = {}, answer }) => {
        const parsed = answer.safeParse(await conversation.request(command, words))
        if (parsed.success) return parsed.data
        throw new QmpProtocolError(`QEMU’s answer to ${command} is not as expected: ${parsed.error.message}`)
      },
      event: (isExpected, limitMs) => {
        const found = conversation
          .next(message => message.kind === 'event' && isExpected(message), limitMs)
          .then(message => (message?.kind === 'event' ? message : null))
        // Whoever waits for it may not need it any more when the connection ends.
        found.catch(() => undefined)
        return found
      },
    })
  } finally {
    close()
  }
}

function open(path: string): ReturnType<typeof openUnixSocket> {
  try {
    return openUnixSocket(path)
  } catch (error) {
    throw new QmpUnreachable(`QEMU’s monitor cannot be reached: ${error instanceof Error ? error.message : error}`)
  }
}

type Expectation = { matches: (message: QmpMessage) => boolean; settle: (message: QmpMessage | Error | null) => void }

/** Matches what comes with what is expected. Messages that nobody expects are dropped. */
function createConversation(socket: Socket) {
  const expected = new Set<Expectation>()
  let failure: Error | null = null
  let lastId = 0
  const fail = (error: Error) => {
    failure ??= error
    for (const { settle } of [...expected]) settle(failure)
    socket.destroy()
  }
  const read = createMessageReader()
  socket.setEncoding('utf8')
  socket.on('data', (piece: string) => {
    try {
      for (const message of read(piece)) {
        for (const one of [...expected]) if (one.matches(message)) one.settle(message)
      }
    } catch (error) {
      fail(error instanceof Error ? error : new QmpProtocolError(String(error)))
    }
  })
  socket.on('error', ({ message }) => fail(new QmpUnreachable(`QEMU’s monitor cannot be reached: ${message}`)))
  socket.on('close', () => fail(new QmpUnreachable('QEMU’s monitor has closed the connection.')))

  /** Null if none comes in time. */
  const next = (matches: Expectation['matches'], limitMs: number): Promise<QmpMessage | null> => {
    const found = new Promise<QmpMessage | null>((resolve, reject) => {
      if (failure !== null) return reject(failure)
      const one: Expectation = {
        matches,
        settle: outcome => {
          clearTimeout(limit)
          expected.delete(one)
          if (outcome instanceof Error) reject(outcome)
          else resolve(outcome)
        },
      }
      const limit = setTimeout(() => one.settle(null), limitMs)
      expected.add(one)
    })
    // Whoever waits for it may have failed with something else before.
    found.catch(() => undefined)
    return found
  }

  const request = async (command: string, words: Readonly<Record<string, unknown>>): Promise<unknown> => {
    const id = ++lastId
    // Without an id, QEMU says that it has understood nothing of what it got.
    const answer = next(
      message =>
        (message.kind === 'return' && message.id === id) ||
        (message.kind === 'error' && (message.id === id || message.id === null)),
      ANSWER_LIMIT_MS,
    )
    socket.write(`${JSON.stringify({ execute: command, arguments: words, id })}\n`)
    const message = await answer
    if (message === null) throw new QmpUnreachable(`QEMU does not answer ${command}.`)
    if (message.kind === 'error') throw new QmpRefused(command, message.class, message.description)
    return message.kind === 'return' ? message.value : undefined
  }
  return { next, request }
}
