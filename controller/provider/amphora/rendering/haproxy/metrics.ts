import { HAPROXY_METRICS_SOCKET, METRICS_PORT, METRICS_PROXY } from '../../../../../amphora-agent/protocol/paths.js'
import type { ListenerNode } from '../../../../load-balancer/tree/tree.js'
import type { AmphoraFacts } from '../facts.js'
import { type ConfigurationWord, endpoint, identifier, integer, keywords } from '../quote.js'

/**
 * The way of metrics: a PROMETHEUS listener asks the agent, and the agent asks HAProxy's exporter on a socket that
 * only root can open. Frontend and backend have the same name.
 */
export type MetricsModel = {
  name: ConfigurationWord
  socket: ConfigurationWord
  maxconn: ConfigurationWord
  agent: ConfigurationWord
}

/**
 * Connections from the agent to HAProxy. They do not come out of the listeners' shares: a full load balancer shows
 * its metrics all the same.
 */
export const METRICS_CONNECTIONS = 2

export const servesMetrics = ({ protocol }: Pick<ListenerNode, 'protocol'>): boolean => protocol === 'PROMETHEUS'

/** @returns null if no listener serves metrics, or the agent is too old to translate them */
export function metricsModel(
  listeners: readonly ListenerNode[],
  { answersMetrics }: AmphoraFacts,
): MetricsModel | null {
  if (!answersMetrics || !listeners.some(servesMetrics)) return null
  return {
    name: identifier(METRICS_PROXY, 'The metrics'),
    socket: keywords(HAPROXY_METRICS_SOCKET),
    maxconn: integer(METRICS_CONNECTIONS, 'maxconn of the metrics', 1, 100),
    agent: endpoint('127.0.0.1', METRICS_PORT, 'The agent'),
  }
}
