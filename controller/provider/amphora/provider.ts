import type { Bindings } from '../../bindings/bindings.js'
import { type ComputeDriver, ComputeUnavailable, type MachineSpec, NoFreeHost } from '../../compute/driver.js'
import type { PlacementRules } from '../../compute/placement.js'
import type { Database } from '../../database/connection.js'
import type { HealthManagerSettings } from '../../health-manager/options.js'
import type { KeyChannelAccess } from '../../key-channel/keys.js'
import type { Logger } from '../../log/log.js'
import type { NetworkDriver } from '../../network/driver.js'
import { type Provider, ProvisioningFault } from '../provider.js'
import { converge } from './act/converge.js'
import type { MachineTurns } from './act/machine-turns.js'
import type { Remembered } from './act/observe.js'
import type { AgentBundle } from './agent/bundle.js'
import type { AgentConnections } from './agent/connection.js'
import type { HaproxySettings } from './rendering/facts.js'

export type AmphoraProviderOptions = {
  /** The role of the load balancer service. */
  database: Database
  /** The controller host to which the machines of this process are bound; null if they are bound to none. */
  hostId: string | null
  network: NetworkDriver
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
  config: Pick<
    HealthManagerSettings,
    'beat_interval' | 'stale_after' | 'replace_after' | 'restart_limit' | 'project_restart_limit' | 'restart_window'
  >
  haproxy: HaproxySettings
  log: Logger
}

/** Load balancers whose last observation is kept, so that a small change needs no new one. */
const MAX_REMEMBERED = 10_000

/** Runs load balancers on amphorae: machines with HAProxy, one or two per load balancer. */
export function createAmphoraProvider(options: AmphoraProviderOptions): Provider {
  const { config, haproxy, ...rest } = options
  const restartLimits = {
    perProject: config.project_restart_limit,
    overall: config.restart_limit,
    windowSeconds: config.restart_window,
  }
  const parts = { ...rest, beatIntervalSeconds: config.beat_interval, restartLimits }
  const memory = new Map<string, Remembered>()
  return {
    name: 'amphora',
    description: 'The Octavia Amphora driver.',
    converge: async (claim, tree, signal, note = () => undefined) => {
      const remembered = memory.get(tree.id) ?? null
      memory.delete(tree.id)
      const observed = await converge(
        {
          parts,
          staleAfterSeconds: config.stale_after,
          replaceAfterSeconds: config.replace_after,
          beatIntervalSeconds: config.beat_interval,
          haproxy,
          remembered,
          note,
        },
        claim,
        tree,
        signal,
      ).catch((error: unknown) => {
        if (!(error instanceof ComputeUnavailable)) throw error
        throw new ProvisioningFault(error instanceof NoFreeHost ? 'no-free-host' : 'compute-unavailable', error.message)
      })
      if (observed === null || tree.change === 'delete') return
      memory.set(tree.id, { fence: claim.fence, observed })
      const [oldest] = memory.keys()
      if (memory.size > MAX_REMEMBERED && oldest !== undefined) memory.delete(oldest)
    },
  }
}
