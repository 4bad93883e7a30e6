import type { AgentError } from './protocol/messages.js'

/** A request that was not carried out, for a reason that its sender should read. */
export class AnswerError extends Error {
  constructor(readonly answer: AgentError) {
    super(`${answer.code}: ${answer.message}`)
    this.name = 'AnswerError'
  }
}
