import type { MachineLimits } from './capacity.js'

/** How UDP and SCTP listeners share the entries of an amphora's connection tracking: one for each flow. */
export type FlowShares = {
  /** Limit of each listener with -1; null as long as no other listener has a limit of its own. */
  unlimited: number | null
  /** For explicit limits: less than 1 if the machine cannot meet them. */
  factor: number
  /** What exceeds the machine, and what would fit; null if everything fits. */
  excess: string | null
}

/** The kernel's default on a machine of less than 4 GiB, for agents that do not report it. */
const DEFAULT_FLOWS = 65_536
/** The rest is for connections of HAProxy, probes, and flows that are about to be forgotten. */
const SHARE = 0.9
/** Minimum share of a listener with -1. */
const MIN_UNLIMITED = 100

/**
 * What a limit admits must fit whatever the other listeners do. Listeners with -1 are only limited where that protects
 * others: the kernel spends time on each packet of a new flow to count those of a limited listener.
 * @param connectionLimits of each enabled UDP and SCTP listener
 */
export function shareFlows({ flows }: MachineLimits, connectionLimits: readonly number[]): FlowShares {
  const available = Math.floor((flows ?? DEFAULT_FLOWS) * SHARE)
  const named = connectionLimits.filter(limit => limit >= 0).reduce((sum, limit) => sum + limit, 0)
  const unlimited = connectionLimits.filter(limit => limit < 0).length
  const needed = named + unlimited * MIN_UNLIMITED
  const protectsOthers = connectionLimits.some(limit => limit > 0)
  if (needed > available) {
    const fitting = Math.max(0, available - unlimited * MIN_UNLIMITED)
    return {
      unlimited: Math.max(1, Math.floor((MIN_UNLIMITED * available) / needed)),
      factor: available / needed,
      excess: `The load balancer exceeds its capacity: connection limits of ${named} in all for UDP and SCTP. Limits of ${fitting} in all fit.`,
    }
  }
  const each = protectsOthers && unlimited > 0 ? Math.floor((available - named) / unlimited) : null
  return { unlimited: each, factor: 1, excess: null }
}
