/**
 * The protocol of this controller and this agent. What is added leaves it as it is: a new verb, which an older agent
 * answers with `malformed`; a new attribute of an answer, which an older agent omits; an attribute of a request that the
 * controller sends only to agents that say they know it. It is raised by everything else, and then the controller keeps
 * speaking the former version, and the agent keeps understanding it, until the version is raised again.
 */
export const PROTOCOL_VERSION = 1

/** How an agent's protocol relates to a controller's. */
export type Compatibility = 'compatible' | 'too-old' | 'too-new'

/**
 * An agent may be one version older than the controller, which speaks that version too, or one version newer: then it
 * understands the controller's.
 */
export function compatibility(agent: number, controller = PROTOCOL_VERSION): Compatibility {
  if (agent < controller - 1) return 'too-old'
  return agent > controller + 1 ? 'too-new' : 'compatible'
}
