import type {
  Backend,
  ChallengesPart,
  Frontend,
  ObjectTable,
  TlsPart,
} from '../../../../../amphora-agent/protocol/desired.js'
import {
  HAPROXY_CHROOT,
  HAPROXY_GROUP,
  HAPROXY_LOG_LINE,
  HAPROXY_SERVER_STATE_FILE,
  HAPROXY_SOCKET_LINE,
  HAPROXY_USER,
} from '../../../../../amphora-agent/protocol/paths.js'
import { isDatagram } from '../../../../load-balancer/objects/protocols.js'
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
import { type BackendModel, backendIdentifier, renderBackend } from './backend.js'
import { challengesPart, type Front, isLookedAt, type TlsChallengeModel, tlsChallengeModel } from './challenges.js'
import { type FrontendModel, frontendModel, insertsCertificateHeaders } from './frontend.js'
import { type L7Model, l7Model, servingPools } from './l7.js'
import { METRICS_CONNECTIONS, type MetricsModel, metricsModel, servesMetrics } from './metrics.js'
import { type PeersModel, peersModel } from './peers.js'
import { authenticatesClients, tlsPart } from './tls.js'

/** Input of the template haproxy.hbs. */
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
  /**
   * HAProxy's listeners share their sessions, and a resumed session is not verified again: one of another listener, or
   * of a certificate that was revoked since, would be taken for an authenticated client.
   */
  resumesNoSessions: boolean
  serverStateFile: ConfigurationWord
  /** Null when there is no stick table to share. */
  peers: PeersModel | null
  /** Null when nobody asks for metrics under Octavia's names. */
  metrics: MetricsModel | null
  /** Null unless a CA validates a name over TLS. */
  tlsChallenges: TlsChallengeModel | null
  frontends: ListenerModel[]
  backends: BackendModel[]
}

type ListenerModel = FrontendModel & { l7: Omit<L7Model, 'handledErrors'> }

export type RenderedHaproxy = {
  model: HaproxyModel
  frontends: Frontend[]
  backends: Backend[]
  tls: TlsPart
  challenges: ChallengesPart
  objects: ObjectTable
}

/**
 * HAProxy's configuration for one load balancer; null if the load balancer is disabled or has no enabled
 * listener. Pure, and independent of the order of rows. Omits objects that are disabled or under deletion, except
 * that a disabled member becomes a disabled server.
 * @throws ProvisioningFault for a value that cannot be written
 */
export function haproxyModel(tree: LoadBalancerTree, facts: AmphoraFacts): RenderedHaproxy | null {
  if (!tree.adminStateUp || tree.change === 'delete') return null
  const listeners = connectionListeners(tree).sort(byId)
  if (listeners.length === 0) return null
  const pools = new Map(tree.pools.filter(isDesired).map(pool => [pool.id, pool]))

  const features = {
    addsServersWithCookies: isAtLeast(facts.haproxyVersion, [3, 0]),
    hasDefaultAlpn: isAtLeast(facts.haproxyVersion, [2, 8]),
  }
  const demand = demandOf(tree, listeners, pools)
  const fitting = shareConnections(facts.limits, demand)
  const shares = 'excess' in fitting ? scaleDown(facts.limits, demand) : { ...fitting, factor: 1 }
  const metrics = metricsModel(listeners, facts)
  const challenges = challengesPart(tree)
  const membersTrustCertificateHeaders = listeners.some(insertsCertificateHeaders)
  const fronts: { listenerId: string; front: Front }[] = []
  const frontendModels: ListenerModel[] = []
  const frontends: Frontend[] = []
  const backendModels: BackendModel[] = []
  const backends: Backend[] = []
  const objects: ObjectTable = { listeners: listeners.map(listener => listener.id), pools: [] }
  for (const listener of listeners) {
    const defaultPool = listener.defaultPoolId === null ? undefined : pools.get(listener.defaultPoolId)
    const poolBackend = defaultPool === undefined ? null : backendIdentifier(defaultPool, listener)
    const defaultBackend = servesMetrics(listener) ? (metrics?.name ?? null) : poolBackend
    const { connectionLimit } = listener
    const maxconn = connectionLimit < 0 ? shares.unlimited : scaled(connectionLimit, shares.factor)
    const { handledErrors, ...l7 } = l7Model(listener, pools)
    const { model, front } = frontendModel(tree, listener, {
      ...{ defaultBackend, maxconn, handledErrors, pair: facts.pair, ...features },
      isLookedAt: isLookedAt(listener, challenges),
      answersChallenges: facts.readsMaterial,
      membersTrustCertificateHeaders,
    })
    if (front !== null) fronts.push({ listenerId: listener.id, front })
    frontendModels.push({ ...model, l7 })
    frontends.push({ name: listener.id, maxconn: Number(textOf(model.maxconn)) })
    for (const pool of servingPools(listener, pools)) {
      const rendered = renderBackend(tree, listener, pool, features)
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
    maxconn: integer(
      Math.max(1, shares.total) + (metrics === null ? 0 : METRICS_CONNECTIONS),
      'maxconn',
      1,
      10_000_000,
    ),
    maxpipes: integer(PIPES, 'maxpipes', 1, 10_000),
    logsOnlyErrors: !facts.logRequests,
    resumesNoSessions: listeners.some(authenticatesClients),
    // A new worker considers every server up until a check fails. The state file carries over the old worker's
    // states, so that a dead member gets no traffic after a reload. The agent writes the file and omits servers
    // whose line changed: otherwise they would get their old weight or address back, or stay down forever once
    // their monitor is removed.
    serverStateFile: keywords(HAPROXY_SERVER_STATE_FILE),
    peers: backendModels.some(({ persistence }) => persistence.stickTable !== null) ? peersModel(facts) : null,
    metrics,
    tlsChallenges: tlsChallengeModel(challenges, fronts),
    frontends: frontendModels,
    backends: backendModels,
  }
  const serving = listeners.flatMap(listener => servingPools(listener, pools))
  const tls = tlsPart(tree, listeners, [...new Set(serving)].sort(byId))
  return { model, frontends, backends, tls, challenges, objects }
}

/** The enabled listeners whose clients HAProxy serves. */
const connectionListeners = ({ listeners }: LoadBalancerTree): ListenerNode[] =>
  listeners.filter(listener => isDesired(listener) && !isDatagram(listener.protocol))

/** Describes what the load balancer's connections need beyond these limits; null if they fit. Pure. */
export function connectionShortage(tree: LoadBalancerTree, limits: MachineLimits): string | null {
  const pools = new Map(tree.pools.filter(isDesired).map(pool => [pool.id, pool]))
  const shares = shareConnections(limits, demandOf(tree, connectionListeners(tree), pools))
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
