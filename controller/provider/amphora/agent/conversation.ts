import type { Duplex } from 'node:stream'
import { createFrameDecoder, encodeFrame } from '../../../../amphora-agent/protocol/frames.js'
import type { Request, ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import { type AgentVerb, answerSchema, MAX_ANSWER, resultSchemas } from './answers.js'
import { AgentRefused, AgentUnreachable, type UnreachableReason } from './errors.js'

/** A request without its id. */
export type RequestBody<V extends AgentVerb> = Omit<Extract<Request, { verb: V }>, 'id'> & { verb: V }

export type Conversation = {
  /** @throws AgentUnreachable, AgentRefused */
  request: <V extends AgentVerb>(body: RequestBody<V>, timeoutMs: number) => Promise<ResultOf[V]>
  isOpen: () => boolean
}

type Waiting = { answered: (result: unknown) => void; failed: (error: Error) => void }

/**
 * Requests and answers over one stream, many at once. Ends for good at the first answer that cannot be understood, and when the stream closes;
 * requests under way then fail. `ended` is called once.
 */
export function converse(stream: Duplex, amphoraId: string, ended: () => void): Conversation {
  const waiting = new Map<number, Waiting>()
  const decode = createFrameDecoder(MAX_ANSWER)
  let lastId = 0
  let open = true

  const end = (reason: UnreachableReason, message: string) => {
    if (!open) return
    open = false
    for (const { failed } of waiting.values()) failed(new AgentUnreachable(amphoraId, reason, message))
    waiting.clear()
    stream.destroy()
    ended()
  }

  const take = (value: unknown) => {
    const answer = answerSchema.parse(value)
    // An answer that came after its time limit has nobody waiting any more.
    const request = waiting.get(answer.id)
    waiting.delete(answer.id)
    if (answer.ok) request?.answered(answer.result)
    else request?.failed(new AgentRefused(amphoraId, answer.error))
  }

  stream.on('data', (piece: Buffer) => {
    try {
      for (const value of decode(piece)) take(value)
    } catch {
      end('malformed-answer', 'The agent answered what cannot be understood.')
    }
  })
  stream.on('error', () => undefined)
  for (const event of ['end', 'close']) {
    stream.once(event, () => end('connection-lost', 'The connection to the agent was lost.'))
  }

  return {
    isOpen: () => open,
    request: (body, timeoutMs) =>
      new Promise((resolve, reject) => {
        if (!open) {
          return reject(new AgentUnreachable(amphoraId, 'connection-lost', 'The connection to the agent was lost.'))
        }
        const id = ++lastId
        const timer = setTimeout(() => {
          waiting.delete(id)
          const seconds = (timeoutMs / 1000).toFixed(1)
          reject(
            new AgentUnreachable(
              amphoraId,
              'no-answer',
              `The agent did not answer "${body.verb}" within ${seconds} s.`,
            ),
          )
        }, timeoutMs)
        waiting.set(id, {
          answered: result => {
            clearTimeout(timer)
            const checked = resultSchemas[body.verb].safeParse(result)
            if (checked.success) return resolve(checked.data)
            const message = `The agent's answer to "${body.verb}" cannot be understood.`
            reject(new AgentUnreachable(amphoraId, 'malformed-answer', message))
          },
          failed: error => {
            clearTimeout(timer)
            reject(error)
          },
        })
        stream.write(encodeFrame({ id, ...body }))
      }),
  }
}
