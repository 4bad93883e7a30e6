import { randomBytes } from 'node:crypto'
import { setMaxListeners } from 'node:events'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bindings } from '../bindings/bindings.js'
import type { Challenges } from '../bindings/challenges.js'
import type { ComputeDriver, MachineSpec } from '../compute/driver.js'
import type { LookAround } from '../compute/host-agents.js'
import type { PlacementRules } from '../compute/placement.js'
import type { Database } from '../database/connection.js'
import type { HealthManagerSettings } from '../health-manager/options.js'
import type { Watch } from '../hosts/judge.js'
import type { KeyChannelAccess } from '../key-channel/keys.js'
import type { Logger } from '../log/log.js'
import type { NetworkDriver } from '../network/driver.js'
import { repeat } from '../process/repeat.js'
import type { MachineTurns } from '../provider/amphora/act/machine-turns.js'
import type { AgentBundle } from '../provider/amphora/agent/bundle.js'
import type { AgentConnections } from '../provider/amphora/agent/connection.js'
import { upgradeAgents } from './agent-upgrades.js'
import { giveExpiryNotices } from './expiry-notices.js'
import { retryOnFreedHosts } from './freed-hosts.js'
import { returnHost, watchHosts } from './host-watch.js'
import { NOTHING_WATCHED, watchInterfaces, watchMachines } from './machine-watch.js'
import type { HousekeepingSettings } from './options.js'
import { sweepOrphans } from './orphan-sweep.js'
import { createProver } from './proof/prove.js'
import { purgeRecords, trimAnswers } from './purge.js'
import { checkReach } from './reach-check.js'
import { createVipLook } from './vip-look.js'
import { checkWarmPool, sizeWarmPool, tendWarmPool, type WarmPool } from './warm-pool.js'

export type HousekeepingOptions = {
  /** The role of the load balancer service. */
  database: Database
  /** The controller host to which the machines of this process are bound; null if they are bound to none. */
  hostId: string | null
  network: NetworkDriver
  lookAround: LookAround
  compute: ComputeDriver
  placement: PlacementRules
  /** By tag, the ids of the images that this host has now. */
  images: () => ReadonlyMap<string, string>
  agentBundle: AgentBundle | null
  agents: AgentConnections
  turns: MachineTurns
  /** 32 bytes; see compute/amphora-identity.ts. */
  masterKey: Buffer
  /** Key parts of authorized_keys lines. */
  controllerPublicKey: string
  operatorPublicKey: string
  healthManagers: MachineSpec['healthManagers']
  keyChannel: KeyChannelAccess
  bindings: Bindings
  /** Null with another key manager, which publishes none. */
  challenges: Challenges | null
  config: { health_manager: HealthManagerSettings; housekeeping: HousekeepingSettings }
  log: Logger
  /** Value for lease_owner; unique for each start. */
  owner?: string
  /** Interval between checks of the warm pool; default 1 s. */
  poolIntervalSeconds?: number
}

const STOP_LIMIT_MS = 5_000
const WATCH_SECONDS = 1
const INTERFACES_SECONDS = 3
const TEND_SECONDS = 3
const REACH_SECONDS = 5
const UPGRADE_SECONDS = 2
const BINDINGS_SECONDS = 3
const CHALLENGES_SECONDS = 1
const PROOF_SECONDS = 1
const EXPIRY_SECONDS = 60
const HOSTS_SECONDS = 2
const TRIM_SECONDS = 60
const PURGE_SECONDS = 3_600

/**
 * Until stopped: keeps the warm pool filled, detects machines that end or lose an interface and hosts that are gone,
 * checks agents, removes orphans and purges old records. Any number of housekeepers may share one database. A failure is logged
 * and retried, with longer pauses while it lasts.
 */
export async function startHousekeeping(options: HousekeepingOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, compute, agentBundle, bindings, challenges, config, log, poolIntervalSeconds = 1 } = options
  const owner = options.owner ?? `${hostname()}:${process.pid}:${randomBytes(4).toString('hex')}:housekeeping`
  const stopping = new AbortController()
  // Each loop listens, and Node.js suspects a leak beyond ten.
  setMaxListeners(32, stopping.signal)
  const pool: WarmPool = {
    database,
    parts: { ...options, beatIntervalSeconds: config.health_manager.beat_interval },
    owner,
    log,
    signal: stopping.signal,
  }
  const prover = createProver({
    ...options,
    intervalSeconds: config.housekeeping.certificate_proof_interval,
    signal: stopping.signal,
  })
  const isAutomatic = config.housekeeping.agent_upgrades === 'automatic'
  const failures = new Map<string, number>()
  let orphans: ReadonlySet<string> = new Set()
  let watched = NOTHING_WATCHED
  let hosts: Watch | null = null
  const lookAtVips = createVipLook(options)
  const { hostId } = options
  let reportedInterfaces: ReadonlySet<string> = new Set()
  const sweepSeconds = config.housekeeping.sweep_interval
  const portAgeSeconds = sweepSeconds * 2

  const loops = [
    repeat('filling the warm pool', poolIntervalSeconds, stopping.signal, log, async () => {
      await sizeWarmPool(pool)
      await tendWarmPool(pool, failures)
    }),
    repeat('checking the warm pool', sweepSeconds, stopping.signal, log, () => checkWarmPool(pool)),
    ...(hostId === null
      ? []
      : [
          repeat('watching hosts', HOSTS_SECONDS, stopping.signal, log, async () => {
            await returnHost({ ...options, hostId })
            hosts = await watchHosts({ ...options, hostId, lookAtVips }, hosts)
          }),
        ]),
    repeat('watching machines', WATCH_SECONDS, stopping.signal, log, async () => {
      watched = await watchMachines({ database, compute, log }, watched)
    }),
    repeat('watching network interfaces', INTERFACES_SECONDS, stopping.signal, log, async () => {
      reportedInterfaces = await watchInterfaces({ database, compute, log }, reportedInterfaces)
    }),
    repeat('tending machines', TEND_SECONDS, stopping.signal, log, async () => {
      await compute.tend?.()
      await retryOnFreedHosts(database)
    }),
    repeat('checking agents', REACH_SECONDS, stopping.signal, log, () =>
      checkReach({
        ...options,
        staleAfterSeconds: config.health_manager.stale_after,
        replaceAfterSeconds: config.health_manager.replace_after,
      }),
    ),
    ...(agentBundle === null
      ? []
      : [
          repeat('upgrading agents', UPGRADE_SECONDS, stopping.signal, log, () =>
            upgradeAgents({ database, bundle: agentBundle.sha256, isAutomatic, log }),
          ),
        ]),
    repeat('removing orphans', sweepSeconds, stopping.signal, log, async () => {
      orphans = await sweepOrphans({ ...options, portAgeSeconds }, orphans)
    }),
    repeat('proving certificates', PROOF_SECONDS, stopping.signal, log, prover.proveDue).then(prover.settled),
    repeat('tending certificates', BINDINGS_SECONDS, stopping.signal, log, async () => {
      const due = await bindings.tend()
      if (due > 0) log.info({ loadBalancers: due }, 'certificates have changed, or nobody confirmed their use')
    }),
    ...(challenges === null
      ? []
      : [
          repeat('passing on challenges', CHALLENGES_SECONDS, stopping.signal, log, async () => {
            const changed = await challenges.tend()
            if (changed > 0) log.info({ challenges: changed }, 'challenges of a CA have come or gone')
          }),
        ]),
    repeat('looking for certificates that expire', EXPIRY_SECONDS, stopping.signal, log, async () => {
      await giveExpiryNotices(database, log)
    }),
    repeat('trimming kept answers', TRIM_SECONDS, stopping.signal, log, () => trimAnswers(database)),
    repeat('purging old records', PURGE_SECONDS, stopping.signal, log, () => purgeRecords(database)),
  ]
  return {
    stop: async () => {
      stopping.abort()
      const timeout = new AbortController()
      await Promise.race([
        Promise.all(loops),
        sleep(STOP_LIMIT_MS, undefined, { signal: timeout.signal }).catch(() => undefined),
      ])
      timeout.abort()
    },
  }
}
