import type { Desired } from '../../../../amphora-agent/protocol/desired.js'
import type { MissingMaterial } from '../../../../amphora-agent/protocol/messages.js'
import type { Bindings } from '../../../bindings/bindings.js'
import { placementOf } from '../../../compute/placement.js'
import type { Database } from '../../../database/connection.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import type { Logger } from '../../../log/log.js'
import type { Port } from '../../../network/driver.js'
import type { Claim } from '../../../queue/claim.js'
import { type Action, ClaimLost } from '../../provider.js'
import { releaseVipPort, vipPortRequest } from '../../vip-port.js'
import { agentTarget, announceVips, awaitLeaving, awaitVips, beginHandover, drain } from '../agent/agent.js'
import type { AgentTarget } from '../agent/connection.js'
import { withTimeLimit } from '../agent/time-limit.js'
import { apartFrom } from '../plan/apart.js'
import { covers, desiredNetworkIds } from '../plan/desired-ports.js'
import { machineLimits } from '../plan/desired-state.js'
import type { Observed } from '../plan/observation.js'
import { incompleteSuccessor, restartLimitFault } from '../plan/plan-unreachable.js'
import type { Step } from '../plan/step.js'
import { shortageOf } from '../rendering/desired.js'
import { interfaceName } from '../rendering/keepalived/interfaces.js'
import { AGENT_START_SECONDS, awaitStart, upgradeInPlace } from './agent-steps.js'
import { allocateAmphora } from './allocate.js'
import {
  deleteAmphora,
  markForReplacement,
  readPlacement,
  recheckIn,
  recordVipPort,
  updateAmphora,
} from './amphora-rows.js'
import { applyDesired } from './apply.js'
import { ensurePort, filterPort, networkOfVip } from './ensure-port.js'
import { createMachine, deletePorts, type MachineParts, machineColumns } from './machine.js'
import { type RestartLimits, takeRestart } from './restart-limiter.js'
import { UPGRADE_SECONDS } from './upgrade.js'

export type AmphoraParts = MachineParts & {
  database: Database
  bindings: Bindings
  restartLimits: RestartLimits
  log: Logger
}

/** What amphorae could not read from the key manager, by their ids. */
export type Missing = Map<string, readonly MissingMaterial[]>

/** What an executor may use: the observation on which the step was planned, and the ports created since. */
export type Acting = {
  parts: AmphoraParts
  claim: Claim
  tree: LoadBalancerTree
  observed: Observed
  /** Keyed by the load balancer's id for its VIP port, and by the port's name for others. */
  createdPorts: Map<string, Port>
  /**
   * Called before every action outside the database.
   * @throws ClaimLost if the claim expired or the worker is stopping
   */
  assertHeld: () => void
  /** Called for each completed action, for the history. */
  note: (action: Action) => void
  /** Updated by each apply. */
  missing: Missing
}

type Kind = Step['kind']
type StepOf<K extends Kind> = Extract<Step, { kind: K }>
type Executor<K extends Kind> = {
  /** Names the step in the fault if it takes too long. */
  what: string
  seconds: number
  /** Loads the machine's host: the step waits for its turn, which does not count towards `seconds`. */
  takesTurns?: true
  run: (acting: Acting, step: StepOf<K>) => Promise<void>
}

/** VRRP takes a fraction of this. */
const VRRP_MS = 3_000

/** The agent checks twice in this time, enough for members without connections. */
const LEAVING_MS = 700

const TABLES_MISSING =
  'session persistence was not carried over from the replaced amphora: clients may change their member once'

/**
 * Executes each kind of step. An executor checks before it creates something, or requests it by a unique name, so
 * that the step may be repeated after any interruption.
 */
const executors: { [K in Kind]: Executor<K> } = {
  'ensure-vip-port': {
    what: 'Creating the port of the VIP',
    seconds: 20,
    run: async ({ parts, claim, tree, createdPorts, assertHeld }) => {
      const networkId = await networkOfVip(parts.network, tree)
      assertHeld()
      const port = await ensurePort(parts.network, vipPortRequest(tree, networkId))
      createdPorts.set(tree.id, port)
      await recordVipPort(parts.database, claim, port.id)
    },
  },
  'filter-vip-port': {
    what: 'Setting the security groups of the VIP',
    seconds: 20,
    run: async ({ parts, tree, createdPorts, assertHeld }, { portId }) => {
      assertHeld()
      createdPorts.set(tree.id, await filterPort(parts.network, portId, tree.vip.securityGroups))
    },
  },
  'release-vip-port': {
    what: 'Releasing the port of the VIP',
    seconds: 20,
    run: async ({ parts, tree, assertHeld }) => {
      assertHeld()
      await releaseVipPort(parts.network, tree)
    },
  },
  'allocate-amphora': {
    what: 'Allocating an amphora',
    seconds: 20,
    run: ({ parts, claim, tree }, { role }) => allocateAmphora(parts, claim, tree, role),
  },
  'create-machine': {
    what: 'Creating an amphora',
    seconds: 120,
    takesTurns: true,
    run: async (acting, step) => {
      await startMachine(acting, step)
      acting.note({ amphora_id: step.amphoraId, action: 'created' })
    },
  },
  'restart-machine': {
    what: 'Restarting an amphora',
    seconds: 120,
    takesTurns: true,
    run: async (acting, step) => {
      await countRestart(acting, step.amphoraId)
      acting.assertHeld()
      await acting.parts.compute.delete(step.amphoraId)
      await startMachine(acting, step)
      acting.note({ amphora_id: step.amphoraId, action: 'restarted' })
    },
  },
  'replace-amphora': {
    what: 'Marking an amphora for replacement',
    seconds: 20,
    run: async (acting, { amphoraId }) => {
      await countRestart(acting, amphoraId)
      await markForReplacement(acting.parts.database, acting.claim, amphoraId)
    },
  },
  'attach-port': {
    what: 'Adding a network interface to an amphora',
    seconds: 30,
    takesTurns: true,
    run: async ({ parts, claim, tree, observed, createdPorts, assertHeld, note }, { amphoraId, port: desired }) => {
      const { purpose, request } = desired
      const { network } = await parts.network.managementNetwork()
      assertHeld()
      const port = await ensurePort(parts.network, { ...request, projectId: network.projectId })
      createdPorts.set(port.name, port)
      assertHeld()
      await parts.compute.plug(amphoraId, port, tree.projectId)
      const before = observed.amphorae.find(({ id }) => id === amphoraId)
      const hadInterface =
        before?.machine === 'running' && before.ports.some(one => one.id === port.id && covers(one, desired))
      if (hadInterface && before.status === 'ALLOCATED') note({ amphora_id: amphoraId, action: 'replugged' })
      if (purpose === 'member') return
      await updateAmphora(parts.database, claim, amphoraId, {
        vrrp_port_id: port.id,
        vrrp_ip: port.fixedIps.find(({ subnetId }) => subnetId === tree.vip.subnetId)?.address,
        vrrp_interface: interfaceName(port.id),
        ha_ip: tree.vip.address,
        ha_port_id: createdPorts.get(tree.id)?.id ?? tree.vip.portId,
      })
    },
  },
  'await-agent': {
    what: 'Waiting for an amphora to start',
    seconds: AGENT_START_SECONDS + UPGRADE_SECONDS,
    run: (acting, { amphoraId }) => awaitStart(acting, amphoraId),
  },
  'upgrade-agent': {
    what: 'Upgrading the agent of an amphora',
    seconds: UPGRADE_SECONDS,
    run: (acting, { amphoraId }) =>
      upgradeInPlace(acting, amphoraId, targetOf(acting.parts, acting.observed, amphoraId)),
  },
  apply: {
    what: 'Applying the configuration to an amphora',
    seconds: 70,
    run: apply,
  },
  'begin-handover': {
    what: 'Preparing the move of the VIP',
    seconds: 60,
    run: async (acting, { parts: both }) => {
      acting.assertHeld()
      // The leaving amphora comes first: it must be ready for forwarded packets and requests.
      for (const { amphoraId, handover } of both) {
        await bestEffort(acting, amphoraId, 'its connections are cut when the VIP moves', async () => {
          const target = targetOf(acting.parts, acting.observed, amphoraId)
          const lacksTables = await beginHandover(acting.parts.agents, target, handover)
          if (lacksTables) acting.note({ amphora_id: amphoraId, action: 'configured', reason: TABLES_MISSING })
        })
      }
    },
  },
  'demote-amphora': {
    what: 'Taking the VIP from an amphora',
    seconds: 90,
    run: async (acting, { amphoraId, standby }) => {
      await updateAmphora(acting.parts.database, acting.claim, amphoraId, { status: 'PENDING_DELETE' })
      await bestEffort(acting, amphoraId, 'it loses the VIP along with its interface', () =>
        apply(acting, { amphoraId, desired: standby }),
      )
    },
  },
  'await-vip': {
    what: 'Waiting for the other amphora to take the VIP',
    seconds: 20,
    run: async (acting, { amphoraId, vips }) => {
      await bestEffort(acting, amphoraId, 'whether it has the VIP is unknown', async () => {
        const target = targetOf(acting.parts, acting.observed, amphoraId)
        if (await awaitVips(acting.parts.agents, target, vips, VRRP_MS)) return
        acting.parts.log.warn({ amphora: amphoraId }, 'the VIP has not moved yet')
      })
    },
  },
  'drain-amphora': {
    what: 'Waiting for the last connections of an amphora',
    seconds: 90,
    run: async (acting, { amphoraId, seconds, waitSeconds }) => {
      const { parts, observed, assertHeld } = acting
      assertHeld()
      await bestEffort(acting, amphoraId, 'its connections are cut', () =>
        drain(parts.agents, targetOf(parts, observed, amphoraId), { seconds, limitMs: waitSeconds * 1000, assertHeld }),
      )
    },
  },
  'await-leaving': {
    what: 'Waiting for requests to removed members',
    seconds: 20,
    run: async (acting, { amphoraId }) => {
      const { parts, observed, assertHeld } = acting
      assertHeld()
      await bestEffort(acting, amphoraId, 'its removed members are checked later', () =>
        awaitLeaving(parts.agents, targetOf(parts, observed, amphoraId), { limitMs: LEAVING_MS, assertHeld }),
      )
    },
  },
  'observe-again': {
    what: 'Scheduling another check',
    seconds: 20,
    run: ({ parts, claim }, { seconds }) => recheckIn(parts.database, claim, seconds),
  },
  'silence-amphora': {
    what: 'Cutting an amphora off from the VIP',
    seconds: 30,
    run: async ({ parts, claim, assertHeld }, { amphoraId, portId }) => {
      await updateAmphora(parts.database, claim, amphoraId, { status: 'PENDING_DELETE' })
      if (portId === null) return
      assertHeld()
      await parts.compute.unplug(amphoraId, portId)
    },
  },
  'announce-vip': {
    what: 'Announcing the VIP',
    seconds: 20,
    run: async ({ parts, observed, assertHeld }, { amphoraId }) => {
      assertHeld()
      await announceVips(parts.agents, targetOf(parts, observed, amphoraId))
    },
  },
  'detach-port': {
    what: 'Removing a network interface from an amphora',
    seconds: 30,
    takesTurns: true,
    run: async ({ parts, createdPorts, assertHeld }, { amphoraId, portId }) => {
      assertHeld()
      await parts.compute.unplug(amphoraId, portId)
      assertHeld()
      await parts.network.deletePort(portId)
      for (const [name, port] of createdPorts) if (port.id === portId) createdPorts.delete(name)
    },
  },
  'shrink-port': {
    what: 'Removing addresses from a network interface',
    seconds: 30,
    takesTurns: true,
    run: async ({ parts, tree, observed, createdPorts, assertHeld }, { amphoraId, portId, subnetIds }) => {
      const before = observed.amphorae.find(({ id }) => id === amphoraId)?.ports.find(({ id }) => id === portId)
      if (before === undefined) return
      const fixedIps = before.fixedIps.filter(({ subnetId }) => !subnetIds.includes(subnetId))
      const after = { ...before, fixedIps }
      assertHeld()
      // Before releasing them, so that it no longer sends from an address that another port may get.
      await parts.compute.plug(amphoraId, after, tree.projectId)
      assertHeld()
      await parts.network.releaseAddresses(portId, subnetIds)
      if (createdPorts.has(after.name)) createdPorts.set(after.name, after)
    },
  },
  'delete-machine': {
    what: 'Deleting the machine of an amphora',
    seconds: 60,
    takesTurns: true,
    run: async ({ parts, claim, observed, assertHeld, note }, { amphoraId }) => {
      await updateAmphora(parts.database, claim, amphoraId, { status: 'PENDING_DELETE' })
      assertHeld()
      parts.agents.close(amphoraId)
      await parts.compute.delete(amphoraId)
      note({ amphora_id: amphoraId, action: 'deleted', ...cutReason(observed, amphoraId) })
    },
  },
  'delete-ports': {
    what: 'Deleting the ports of an amphora',
    seconds: 30,
    run: ({ parts, assertHeld }, { amphoraId }) => deletePorts(parts.network, amphoraId, assertHeld),
  },
  'delete-amphora-row': {
    what: 'Removing an amphora',
    seconds: 20,
    run: ({ parts, claim }, { amphoraId }) => deleteAmphora(parts.database, claim, amphoraId),
  },
}

/**
 * Executes one step when it is its turn, within its time limit, and logs its start and end at debug level.
 * @throws ProvisioningFault, ClaimLost, and any error of a driver
 */
export async function runStep(acting: Acting, step: Step): Promise<void> {
  const { what, seconds, takesTurns, run } = executorOf(step.kind)
  const { claim, parts, tree, observed } = acting
  const amphora = 'amphoraId' in step ? step.amphoraId : undefined
  const log = parts.log.child({ step: step.kind, loadBalancer: claim.id, amphora, fence: claim.fence })
  const act = () => {
    log.debug('step begins')
    return withTimeLimit(seconds, what, expired => {
      const assertHeld = () => {
        if (expired()) throw new ClaimLost(`${what} continued past its time limit`)
        acting.assertHeld()
      }
      return run({ ...acting, assertHeld }, step)
    })
  }
  await (takesTurns
    ? parts.turns.take({ projectId: tree.projectId, isRepair: isRepair(tree, observed, amphora) }, act)
    : act())
  log.debug('step done')
}

/** True if something has failed or is being replaced, even if a change is waiting for it. */
function isRepair(tree: LoadBalancerTree, { amphorae }: Observed, amphoraId: string | undefined): boolean {
  const { generation, appliedGeneration, change } = tree
  if (generation <= appliedGeneration || amphorae.some(({ replacing }) => replacing)) return true
  const ran = amphorae.some(({ id, machine }) => id === amphoraId && machine === 'running')
  return appliedGeneration > 0 && change !== 'delete' && !ran
}

/** The table's type pairs each kind with its executor, but TypeScript cannot follow that through a union. */
function executorOf(kind: Kind): Executor<Kind> {
  return executors[kind] as Executor<Kind>
}

async function apply(
  acting: Acting,
  { amphoraId, desired, mustBeWhole = false }: { amphoraId: string; desired: Desired; mustBeWhole?: boolean },
): Promise<void> {
  const { parts, claim, tree, observed, assertHeld, note } = acting
  assertHeld()
  const applied = await applyDesired(parts, claim, targetOf(parts, observed, amphoraId), desired)
  await updateAmphora(parts.database, claim, amphoraId, {
    applied_generation: applied.appliedGeneration,
    applied_sha256: applied.appliedSha256,
    applied_objects: JSON.stringify(desired.objects),
  })
  const { transition, reason, missing = [] } = applied
  acting.missing.set(amphoraId, missing)
  const [first] = missing
  if (mustBeWhole && first !== undefined) throw incompleteSuccessor(first)
  if (transition === 'unchanged') return
  const shortage = shortageIn(tree, observed, amphoraId)
  if (shortage !== null) parts.log.warn({ amphora: amphoraId, loadBalancer: claim.id }, shortage)
  const why = [reason, shortage].filter(Boolean).join('; ')
  note({ amphora_id: amphoraId, action: 'configured', how: transition, ...(why === '' ? {} : { reason: why }) })
}

/** An amphora that is too small scales down every listener's connections. */
function shortageIn(tree: LoadBalancerTree, { amphorae }: Observed, amphoraId: string): string | null {
  const amphora = amphorae.find(({ id }) => id === amphoraId)
  return amphora === undefined ? null : shortageOf(tree, machineLimits(amphora))
}

/** Reports connections that the drain of an amphora had to close. */
function cutReason({ amphorae }: Observed, amphoraId: string): { reason?: string } {
  const agent = amphorae.find(({ id }) => id === amphoraId)?.agent
  const cut = agent?.state === 'answers' ? (agent.drain?.cut ?? 0) : 0
  return cut === 0 ? {} : { reason: `${cut} requests or connections exceeded their time limit and were closed` }
}

/** For steps that only make leaving graceful: an unreachable amphora is removed anyway. */
async function bestEffort(
  { parts }: Acting,
  amphoraId: string,
  consequence: string,
  act: () => Promise<void>,
): Promise<void> {
  try {
    await act()
  } catch (error) {
    if (error instanceof ClaimLost) throw error
    parts.log.warn({ amphora: amphoraId, err: error }, `the amphora does not respond: ${consequence}`)
  }
}

function targetOf({ masterKey }: AmphoraParts, { amphorae }: Observed, amphoraId: string): AgentTarget {
  const host = amphorae.find(({ id }) => id === amphoraId)?.managementAddress
  if (host === undefined || host === null) throw new Error(`Amphora ${amphoraId} has no management address`)
  return agentTarget(masterKey, amphoraId, host)
}

/** @throws ProvisioningFault `restart-limit` */
async function countRestart({ parts, tree }: Acting, amphoraId: string): Promise<void> {
  if (!(await takeRestart(parts.database, tree.projectId, amphoraId, parts.restartLimits))) throw restartLimitFault()
}

async function startMachine(acting: Acting, { amphoraId }: { amphoraId: string }): Promise<void> {
  // It would take a while to notice that a connection to the previous machine is dead.
  acting.parts.agents.close(amphoraId)
  const { parts, tree, observed, claim, assertHeld } = acting
  const placement = placementOf(parts.placement, await readPlacement(parts.database, parts.placement, amphoraId))
  const apart = apartFrom(observed.amphorae, amphoraId)
  const networks = desiredNetworkIds(tree, observed.subnets)
  const spec = { amphoraId, projectId: tree.projectId, placement, apart, networks }
  const machine = await createMachine(parts, spec, assertHeld)
  await updateAmphora(parts.database, claim, amphoraId, { ...machineColumns(machine), unreachable_since: null })
}
