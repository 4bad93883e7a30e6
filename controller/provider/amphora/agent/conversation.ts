import type { Duplex } from 'node:stream'
import { createFrameDecoder, encodeFrame } from '../../../../amphora-agent/protocol/frames.js'
import type { Request, ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import { type AgentVerb, answerSchema, foreigner, MAX_ANSWER, resultSchemas } from './answers.js'
import { AgentIncompatible, AgentRefused, AgentUnreachable, type UnreachableReason } from './errors.js'

const LOST = 'The connection to the agent was lost.'

/** A request without its `id`. */
export type RequestBody<V extends AgentVerb> = Omit<Extract<Request, { verb: V }>, 'id'> & { verb: V }

type Waiting = { answered: (result: unknown) => void; failed: (error: Error) => void }

/**
 * Concurrent requests and answers over one stream. Ends at the first malformed answer or when the stream closes;
 * pending requests then fail.
 */
export class Conversation {
  readonly #stream: Duplex
  readonly #amphoraId: string
  readonly #ended: () => void
  readonly #waiting = new Map<number, Waiting>()
  #lastId = 0
  #isOpen = true

  /** @param ended called once, when the conversation ends */
  constructor(stream: Duplex, amphoraId: string, ended: () => void) {
    this.#stream = stream
    this.#amphoraId = amphoraId
    this.#ended = ended
    const decode = createFrameDecoder(MAX_ANSWER)
    stream.on('data', (piece: Buffer) => {
      try {
        for (const value of decode(piece)) this.#take(value)
      } catch {
        this.#end('malformed-answer', 'The agent sent a malformed answer.')
      }
    })
    stream.on('error', () => undefined)
    for (const event of ['end', 'close']) stream.once(event, () => this.#end('connection-lost', LOST))
  }

  /** @throws AgentUnreachable, AgentRefused, AgentIncompatible */
  request<V extends AgentVerb>(body: RequestBody<V>, timeoutMs: number): Promise<ResultOf[V]> {
    return new Promise((resolve, reject) => {
      if (!this.#isOpen) return reject(this.#unreachable('connection-lost', LOST))
      const id = ++this.#lastId
      const timer = setTimeout(() => {
        this.#waiting.delete(id)
        const seconds = (timeoutMs / 1000).toFixed(1)
        reject(this.#unreachable('no-answer', `The agent did not answer "${body.verb}" within ${seconds} s.`))
      }, timeoutMs)
      this.#waiting.set(id, {
        answered: result => {
          clearTimeout(timer)
          const foreign = foreigner(result)
          if (foreign !== null) return reject(new AgentIncompatible(this.#amphoraId, foreign))
          const checked = resultSchemas[body.verb].safeParse(result)
          if (checked.success) return resolve(checked.data)
          const message = `The agent sent a malformed answer to "${body.verb}".`
          reject(this.#unreachable('malformed-answer', message))
        },
        failed: error => {
          clearTimeout(timer)
          reject(error)
        },
      })
      this.#stream.write(encodeFrame({ id, ...body }))
    })
  }

  #take(value: unknown): void {
    const answer = answerSchema.parse(value)
    // Undefined if the answer arrived after the timeout.
    const request = this.#waiting.get(answer.id)
    this.#waiting.delete(answer.id)
    if (answer.ok) request?.answered(answer.result)
    else request?.failed(new AgentRefused(this.#amphoraId, answer.error))
  }

  #end(reason: UnreachableReason, message: string): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    for (const { failed } of this.#waiting.values()) failed(this.#unreachable(reason, message))
    this.#waiting.clear()
    this.#stream.destroy()
    this.#ended()
  }

  #unreachable(reason: UnreachableReason, message: string): AgentUnreachable {
    return new AgentUnreachable(this.#amphoraId, reason, message)
  }
}
