import type { Backend, Frontend, ObjectTable } from '../../../../../amphora-agent/protocol/desired.js'
import {
  HAPROXY_CHROOT,
  HAPROXY_GROUP,
  HAPROXY_LOG_LINE,
  HAPROXY_SERVER_STATE_FILE,
  HAPROXY_SOCKET_LINE,
  HAPROXY_USER,
} from '../../../../../amphora-agent/protocol/paths.js'
import {
  type Demand,
  type MachineLimits,
  PIPES,
  scaleDown,
  scaled,
  shareConnections,
} from '../../../../load-balancer/tree/capacity.js'
import type { ListenerNode, LoadBalancerTree, PoolNode } from '../../../../load-balancer/tree/tree.js'
import { byId, isDesired } from '../desired-objects.js'
import type { AmphoraFacts } from '../facts.js'
import { type ConfigurationWord, identifier, integer, keywords, textOf } from '../quote.js'
import { isAtLeast } from '../version.js'
import { type BackendModel, renderBackend } from './backend.js'
import { type FrontendModel, frontendModel } from './frontend.js'
import { type L7Model, l7Model, servingPools } from './l7.js'
import { type PeersModel, peersModel } from './peers.js'

/** What the template haproxy.hbs writes: words of the writer, and switches. */
export type HaproxyModel = {
  loadBalancerId: ConfigurationWord
  socketLine: ConfigurationWord
  logLine: ConfigurationWord
  user: ConfigurationWord
  group: ConfigurationWord
  chroot: ConfigurationWord
  maxconn: ConfigurationWord
  maxpipes: ConfigurationWord
  logsOnlyErrors: boolean
  serverStateFile: ConfigurationWord
  /** Null when there is nothing to tell them. */
  peers: PeersModel | null
  frontends: ListenerModel[]
  backends: BackendModel[]
}

type ListenerModel = FrontendModel & { l7: L7Model }

export type RenderedHaproxy = { model: HaproxyModel; frontends: Frontend[]; backends: Backend[]; objects: ObjectTable }

/**
 * HAProxy's configuration for one load balancer, or null when there is nothing to serve: no enabled listener, or the load balancer is disabled.
 * Pure, and independent of the order of rows. What is disabled or under deletion is left out; a disabled member stays as a
 * disabled server.
 * @throws ProvisioningFault for a value that cannot be written
 */
export function haproxyModel(tree: LoadBalancerTree, facts: AmphoraFacts): RenderedHaproxy | null {
  if (!tree.adminStateUp || tree.change === 'delete') return null
  const listeners = tree.listeners.filter(isDesired).sort(byId)
  if (listeners.length === 0) return null
  const pools = new Map(tree.pools.filter(isDesired).map(pool => [pool.id, pool]))

  const abilities = { addsServersWithCookies: isAtLeast(facts.haproxyVersion, [3, 0]) }
  const demand = demandOf(tree, listeners, pools)
  const fitting = shareConnections(facts.limits, demand)
  const shares = 'excess' in fitting ? scaleDown(facts.limits, demand) : { ...fitting, factor: 1 }
  const frontendModels: ListenerModel[] = []
  const frontends: Frontend[] = []
  const backendModels: BackendModel[] = []
  const backends: Backend[] = []
  const objects: ObjectTable = { listeners: listeners.map(listener => listener.id), pools: [] }
  for (const listener of listeners) {
    const defaultPool = listener.defaultPoolId === null ? undefined : pools.get(listener.defaultPoolId)
    const { connectionLimit } = listener
    const maxconn = connectionLimit < 0 ? shares.unlimited : scaled(connectionLimit, shares.factor)
    const model = frontendModel(tree, listener, defaultPool, maxconn)
    frontendModels.push({ ...model, l7: l7Model(listener, pools) })
    frontends.push({ name: listener.id, maxconn: Number(textOf(model.maxconn)) })
    for (const pool of servingPools(listener, pools)) {
      const rendered = renderBackend(tree, listener, pool, abilities)
      backendModels.push(rendered.model)
      backends.push(rendered.backend)
      objects.pools.push({ poolId: pool.id, listenerId: listener.id, members: rendered.members })
    }
  }
  const model: HaproxyModel = {
    loadBalancerId: identifier(tree.id, 'Load balancer id'),
    socketLine: keywords(HAPROXY_SOCKET_LINE),
    logLine: keywords(HAPROXY_LOG_LINE),
    user: keywords(HAPROXY_USER),
    group: keywords(HAPROXY_GROUP),
    chroot: keywords(HAPROXY_CHROOT),
    maxconn: integer(Math.max(1, shares.total), 'maxconn', 1, 10_000_000),
    maxpipes: integer(PIPES, 'maxpipes', 1, 10_000),
    logsOnlyErrors: !facts.logRequests,
    // A worker that starts takes every server for up until its checks say otherwise. So that a dead member gets no traffic after a reload, the
    // old worker's states are carried over. The agent writes the file, without the servers whose line changed: for those, an old
    // weight or address would come back to life, and one whose monitor was removed would stay down for ever.
    serverStateFile: keywords(HAPROXY_SERVER_STATE_FILE),
    peers: backendModels.some(({ persistence }) => persistence.stickTable !== null) ? peersModel(facts) : null,
    frontends: frontendModels,
    backends: backendModels,
  }
  return { model, frontends, backends, objects }
}

/** What an amphora with these limits cannot give of what is asked for, in a sentence; null when it gives all. Pure. */
export function shortageOf(tree: LoadBalancerTree, limits: MachineLimits): string | null {
  const pools = new Map(tree.pools.filter(isDesired).map(pool => [pool.id, pool]))
  const shares = shareConnections(limits, demandOf(tree, tree.listeners.filter(isDesired), pools))
  return 'excess' in shares ? shares.excess : null
}

function demandOf(
  tree: LoadBalancerTree,
  listeners: readonly ListenerNode[],
  pools: ReadonlyMap<string, PoolNode>,
): Demand {
  const checks = listeners
    .flatMap(listener => servingPools(listener, pools))
    .filter(({ healthMonitor }) => healthMonitor !== null && isDesired(healthMonitor))
    .reduce((sum, { members }) => sum + members.filter(({ change }) => change !== 'delete').length, 0)
  return {
    connectionLimits: listeners.map(({ connectionLimit }) => connectionLimit),
    vips: 1 + tree.additionalVips.length,
    checks,
  }
}
