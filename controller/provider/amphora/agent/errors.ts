import type { AgentError } from '../../../../amphora-agent/protocol/messages.js'
import { PROTOCOL_VERSION } from '../../../../amphora-agent/protocol/version.js'
import type { Foreigner } from './answers.js'

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

/** The agent answers, but speaks a protocol that is more than one version away from the controller's. */
export class AgentIncompatible extends Error {
  constructor(
    readonly amphoraId: string,
    readonly agent: Foreigner,
  ) {
    super(
      agent.is === 'too-old'
        ? `The agent ${agent.agentVersion} speaks version ${agent.protocolVersion} of the protocol, which is too old for this controller: it speaks ${PROTOCOL_VERSION} and the one before.`
        : `The agent ${agent.agentVersion} speaks version ${agent.protocolVersion} of the protocol, which is too new for this controller with ${PROTOCOL_VERSION}. Update the controller.`,
    )
    this.name = 'AgentIncompatible'
  }
}
