import type { AgentError } from '../../../../amphora-agent/protocol/messages.js'

export type UnreachableReason =
  /** The machine answers, but its SSH server or agent is not running. */
  | 'refused'
  | 'no-answer'
  | 'wrong-host-key'
  | 'authentication'
  | 'connection-lost'
  | 'malformed-answer'
  /** The controller abandoned the connection. */
  | 'stopped'

/** The agent could not be reached or did not answer. It may still have carried out the request. */
export class AgentUnreachable extends Error {
  constructor(
    readonly amphoraId: string,
    readonly reason: UnreachableReason,
    message: string,
  ) {
    super(message)
    this.name = 'AgentUnreachable'
  }
}

/** The agent refused the request and did not carry it out. */
export class AgentRefused extends Error {
  constructor(
    readonly amphoraId: string,
    readonly error: AgentError,
  ) {
    super(error.message)
    this.name = 'AgentRefused'
  }
}
