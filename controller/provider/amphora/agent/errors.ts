import type { AgentError } from '../../../../amphora-agent/protocol/messages.js'

export type UnreachableReason =
  /** The machine answers, but its SSH server or agent does not run yet, or no longer. */
  | 'refused'
  | 'no-answer'
  | 'wrong-host-key'
  | 'authentication'
  | 'connection-lost'
  | 'malformed-answer'
  /** Our own side gave the connection up. */
  | 'stopped'

/** The agent could not be asked or did not answer; whether it carried the request out is not known. The message says why, in words. */
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

/** The agent answered that it did not carry the request out. */
export class AgentRefused extends Error {
  constructor(
    readonly amphoraId: string,
    readonly error: AgentError,
  ) {
    super(error.message)
    this.name = 'AgentRefused'
  }
}
