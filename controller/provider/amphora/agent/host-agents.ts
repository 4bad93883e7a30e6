import type { HostAccess, HostAgents } from '../../../compute/host-agents.js'
import type { AgentConnections, AgentTarget } from './connection.js'

/** The agents of enrolled hosts, reached as those of amphorae are. */
export function hostAgents(connections: AgentConnections): HostAgents {
  const limits = (timeoutMs: number) => ({ timeoutMs, connectTimeoutMs: timeoutMs })
  return {
    become: async (host, boot, timeoutMs) => {
      await connections.request(targetOf(host), { verb: 'become', boot }, limits(timeoutMs))
    },
    turn: async (host, timeoutMs) => {
      const { turn } = await connections.request(targetOf(host), { verb: 'hello' }, limits(timeoutMs))
      if (turn === undefined) throw new Error(`The agent of the host ${host.address} is none of an enrolled host.`)
      return turn
    },
    forward: async (host, forwarding, timeoutMs) => {
      await connections.request(targetOf(host), { verb: 'forward', forwarding }, limits(timeoutMs))
    },
    survey: async (host, timeoutMs) =>
      (await connections.request(targetOf(host), { verb: 'survey' }, limits(timeoutMs))).found,
  }
}

const targetOf = ({ id, address, port, hostKey }: HostAccess): AgentTarget => ({
  amphoraId: id,
  host: address,
  port,
  hostKey,
})
