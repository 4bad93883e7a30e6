import type { Desired } from '../../../../amphora-agent/protocol/desired.js'
import type { Database } from '../../../database/connection.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import type { Logger } from '../../../log/log.js'
import {
  AddressTaken,
  InvalidPortRequest,
  NoAddressLeft,
  type Port,
  type PortRequest,
} from '../../../network/driver.js'
import type { Claim } from '../../../queue/claim.js'
import { type Action, ClaimLost, ProvisioningFault } from '../../provider.js'
import { releaseVipPort, vipPortRequest } from '../../vip-port.js'
import { agentTarget, announceVips, awaitAgent, awaitLeaving, awaitVips, beginHandover, drain } from '../agent/agent.js'
import type { AgentTarget } from '../agent/connection.js'
import { withTimeLimit } from '../agent/time-limit.js'
import { covers } from '../plan/desired-ports.js'
import { limitsOf } from '../plan/desired-state.js'
import type { Observed } from '../plan/observation.js'
import { restartLimit } from '../plan/plan-unreachable.js'
import type { Step } from '../plan/step.js'
import { shortageOf } from '../rendering/haproxy/haproxy-model.js'
import { interfaceName } from '../rendering/keepalived/interfaces.js'
import {
  adoptWarmAmphora,
  deleteAmphora,
  insertAmphora,
  limitsColumn,
  markForReplacement,
  recheckIn,
  recordVipPort,
  updateAmphora,
} from './amphora-rows.js'
import { applyDesired } from './apply.js'
import { deletePorts, type MachineParts, machineColumns, makeMachine } from './machine.js'
import { type RestartLimits, takeRestart } from './restart-limiter.js'

export type AmphoraParts = MachineParts & { database: Database; restartLimits: RestartLimits; log: Logger }

/** What an executor may use: the world as observed when the step was planned, and what this attempt has made since. */
export type Acting = {
  parts: AmphoraParts
  claim: Claim
  tree: LoadBalancerTree
  observed: Observed
  /** By the id of the load balancer (its VIP's port) or by the port's own name. */
  made: Map<string, Port>
  /** @throws ClaimLost when the claim is over, or the worker stops; asked before every act outside the database */
  held: () => void
  /** Told of what was done, for the history. */
  note: (action: Action) => void
}

type Kind = Step['kind']
type StepOf<K extends Kind> = Extract<Step, { kind: K }>
type Executor<K extends Kind> = {
  /** For the fault when it takes too long. */
  what: string
  seconds: number
  /** Keeps the host of the machine busy: the step waits for its turn, beyond its seconds. */
  takesTurns?: true
  run: (acting: Acting, step: StepOf<K>) => Promise<void>
}

const AGENT_START_MS = 30_000
/** VRRP needs a fraction of this. */
const VRRP_MS = 3_000

/** The agent looks twice in this time; members without connections have left then. */
const LEAVING_MS = 700

const TABLES_MISSING =
  'it serves without the stick tables of the amphora that it replaces: clients may change their member once'

/**
 * How every step is carried out. Each looks before it creates, or asks for something that is identified by its name, so that it may be
 * repeated after any interruption.
 */
const executors: { [K in Kind]: Executor<K> } = {
  'ensure-vip-port': {
    what: 'Making the port of the VIP',
    seconds: 20,
    run: async ({ parts, claim, tree, made, held }) => {
      const subnet = tree.vip.subnetId === null ? undefined : (await parts.network.subnets([tree.vip.subnetId]))[0]
      const networkId = tree.vip.networkId ?? subnet?.networkId
      if (networkId === undefined) throw new ProvisioningFault('subnet-missing', 'The VIP has no network any more.')
      held()
      const port = await ensurePort(parts, vipPortRequest(tree, networkId))
      made.set(tree.id, port)
      await recordVipPort(parts.database, claim, port.id)
    },
  },
  'release-vip-port': {
    what: 'Releasing the port of the VIP',
    seconds: 20,
    run: async ({ parts, tree, held }) => {
      held()
      await releaseVipPort(parts.network, tree)
    },
  },
  'allocate-amphora': {
    what: 'Allocating an amphora',
    seconds: 20,
    run: async ({ parts, claim, tree }, { role }) => {
      const { projectId, appliedGeneration } = tree
      if (await adoptWarmAmphora(parts.database, claim, { role, projectId, isRepair: appliedGeneration > 0 })) return
      await insertAmphora(parts.database, claim, role)
    },
  },
  'create-machine': {
    what: 'Starting the machine of an amphora',
    seconds: 120,
    takesTurns: true,
    run: async (acting, step) => {
      await startMachine(acting, step)
      acting.note({ amphora_id: step.amphoraId, action: 'created' })
    },
  },
  'restart-machine': {
    what: 'Restarting the machine of an amphora',
    seconds: 120,
    takesTurns: true,
    run: async (acting, step) => {
      await countRestart(acting, step.amphoraId)
      acting.held()
      await acting.parts.compute.delete(step.amphoraId)
      await startMachine(acting, step)
      acting.note({ amphora_id: step.amphoraId, action: 'restarted' })
    },
  },
  'replace-amphora': {
    what: 'Replacing an amphora that cannot be reached',
    seconds: 20,
    run: async (acting, { amphoraId }) => {
      await countRestart(acting, amphoraId)
      await markForReplacement(acting.parts.database, acting.claim, amphoraId)
    },
  },
  'attach-port': {
    what: 'Giving an amphora a network interface',
    seconds: 30,
    takesTurns: true,
    run: async ({ parts, claim, tree, observed, made, held, note }, { amphoraId, port: desired }) => {
      const { purpose, request } = desired
      const { network } = await parts.network.managementNetwork()
      held()
      const port = await ensurePort(parts, { ...request, projectId: network.projectId })
      made.set(port.name, port)
      held()
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
        ha_port_id: made.get(tree.id)?.id ?? tree.vip.portId,
      })
    },
  },
  'await-agent': {
    what: 'Waiting for the agent of an amphora',
    seconds: AGENT_START_MS / 1000 + 10,
    run: async ({ parts, claim, observed, held }, { amphoraId }) => {
      const { database, network, agents, masterKey } = parts
      const recorded = observed.amphorae.find(({ id }) => id === amphoraId)?.managementAddress ?? null
      const host = recorded ?? (await recordedAddress(database, amphoraId))
      if (host === null) throw new Error(`Amphora ${amphoraId} has no management address on ${network.name}`)
      const { limits } = await awaitAgent(agents, agentTarget(masterKey, amphoraId, host), AGENT_START_MS, held)
      await updateAmphora(database, claim, amphoraId, { status: 'ALLOCATED', limits: limitsColumn(limits) })
    },
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
      acting.held()
      // The one that leaves first: what is sent on to it, and asked of it, must find it ready.
      for (const { amphoraId, handover } of both) {
        await ifItCan(acting, amphoraId, 'its connections are cut when the VIP moves', async () => {
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
    run: async (acting, { amphoraId, standingBy }) => {
      await updateAmphora(acting.parts.database, acting.claim, amphoraId, { status: 'PENDING_DELETE' })
      await ifItCan(acting, amphoraId, 'it loses the VIP with its interface', () =>
        apply(acting, { amphoraId, desired: standingBy }),
      )
    },
  },
  'await-vip': {
    what: 'Waiting until the other amphora has the VIP',
    seconds: 20,
    run: async (acting, { amphoraId, vips }) => {
      await ifItCan(acting, amphoraId, 'it is not known whether it has the VIP', async () => {
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
      const { parts, observed, held } = acting
      held()
      await ifItCan(acting, amphoraId, 'its connections are cut', () =>
        drain(parts.agents, targetOf(parts, observed, amphoraId), { seconds, limitMs: waitSeconds * 1000, held }),
      )
    },
  },
  'await-leaving': {
    what: 'Waiting for requests to members that left',
    seconds: 20,
    run: async (acting, { amphoraId }) => {
      const { parts, observed, held } = acting
      held()
      await ifItCan(acting, amphoraId, 'it is asked later whether its members have left', () =>
        awaitLeaving(parts.agents, targetOf(parts, observed, amphoraId), { limitMs: LEAVING_MS, held }),
      )
    },
  },
  'observe-again': {
    what: 'Asking for another observation',
    seconds: 20,
    run: ({ parts, claim }, { seconds }) => recheckIn(parts.database, claim, seconds),
  },
  'silence-amphora': {
    what: 'Cutting an amphora off from the VIP',
    seconds: 30,
    run: async ({ parts, claim, held }, { amphoraId, portId }) => {
      await updateAmphora(parts.database, claim, amphoraId, { status: 'PENDING_DELETE' })
      if (portId === null) return
      held()
      await parts.compute.unplug(amphoraId, portId)
    },
  },
  'announce-vip': {
    what: 'Announcing the VIP',
    seconds: 20,
    run: async ({ parts, observed, held }, { amphoraId }) => {
      held()
      await announceVips(parts.agents, targetOf(parts, observed, amphoraId))
    },
  },
  'detach-port': {
    what: 'Taking a network interface from an amphora',
    seconds: 30,
    takesTurns: true,
    run: async ({ parts, made, held }, { amphoraId, portId }) => {
      held()
      await parts.compute.unplug(amphoraId, portId)
      held()
      await parts.network.deletePort(portId)
      for (const [name, port] of made) if (port.id === portId) made.delete(name)
    },
  },
  'shrink-port': {
    what: 'Taking addresses from a network interface',
    seconds: 30,
    takesTurns: true,
    run: async ({ parts, tree, observed, made, held }, { amphoraId, portId, subnetIds }) => {
      const before = observed.amphorae.find(({ id }) => id === amphoraId)?.ports.find(({ id }) => id === portId)
      if (before === undefined) return
      const fixedIps = before.fixedIps.filter(({ subnetId }) => !subnetIds.includes(subnetId))
      const after = { ...before, fixedIps }
      held()
      // First, so that it is silent before somebody else is given one of the addresses.
      await parts.compute.plug(amphoraId, after, tree.projectId)
      held()
      await parts.network.releaseAddresses(portId, subnetIds)
      if (made.has(after.name)) made.set(after.name, after)
    },
  },
  'delete-machine': {
    what: 'Deleting the machine of an amphora',
    seconds: 60,
    takesTurns: true,
    run: async ({ parts, claim, observed, held, note }, { amphoraId }) => {
      await updateAmphora(parts.database, claim, amphoraId, { status: 'PENDING_DELETE' })
      held()
      parts.agents.close(amphoraId)
      await parts.compute.delete(amphoraId)
      note({ amphora_id: amphoraId, action: 'deleted', ...cutReason(observed, amphoraId) })
    },
  },
  'delete-ports': {
    what: 'Deleting the ports of an amphora',
    seconds: 30,
    run: ({ parts, held }, { amphoraId }) => deletePorts(parts.network, amphoraId, held),
  },
  'delete-amphora-row': {
    what: 'Removing an amphora',
    seconds: 20,
    run: ({ parts, claim }, { amphoraId }) => deleteAmphora(parts.database, claim, amphoraId),
  },
}

/** Carries one step out when it is its turn, within its time limit, and logs its begin and end at debug level. @throws ProvisioningFault, ClaimLost, and whatever a driver throws */
export async function runStep(acting: Acting, step: Step): Promise<void> {
  const { what, seconds, takesTurns, run } = executorOf(step.kind)
  const { claim, parts, tree, observed } = acting
  const amphora = 'amphoraId' in step ? step.amphoraId : undefined
  const log = parts.log.child({ step: step.kind, loadBalancer: claim.id, amphora, fence: claim.fence })
  const act = () => {
    log.debug('step begins')
    return withTimeLimit(seconds, what, expired => {
      const held = () => {
        if (expired()) throw new ClaimLost(`${what} went on past its time limit`)
        acting.held()
      }
      return run({ ...acting, held }, step)
    })
  }
  await (takesTurns
    ? parts.turns.take({ projectId: tree.projectId, isRepair: isRepair(tree, observed, amphora) }, act)
    : act())
  log.debug('step done')
}

/** Something has died, or is to be replaced. That a change waits for it makes no wish of it. */
function isRepair(tree: LoadBalancerTree, { amphorae }: Observed, amphoraId: string | undefined): boolean {
  const { generation, appliedGeneration, change } = tree
  if (generation <= appliedGeneration || amphorae.some(({ replacing }) => replacing)) return true
  const ran = amphorae.some(({ id, machine }) => id === amphoraId && machine === 'running')
  return appliedGeneration > 0 && change !== 'delete' && !ran
}

/** The table pairs every kind with the executor of its own steps, which TypeScript cannot follow through a union. */
function executorOf(kind: Kind): Executor<Kind> {
  return executors[kind] as Executor<Kind>
}

async function apply(acting: Acting, { amphoraId, desired }: { amphoraId: string; desired: Desired }): Promise<void> {
  const { parts, claim, tree, observed, held, note } = acting
  held()
  const applied = await applyDesired(parts, claim, targetOf(parts, observed, amphoraId), desired)
  await updateAmphora(parts.database, claim, amphoraId, {
    applied_generation: applied.appliedGeneration,
    applied_sha256: applied.appliedSha256,
    applied_objects: JSON.stringify(desired.objects),
  })
  const { transition, reason } = applied
  if (transition === 'unchanged') return
  const shortage = shortageIn(tree, observed, amphoraId)
  if (shortage !== null) parts.log.warn({ amphora: amphoraId, loadBalancer: claim.id }, shortage)
  const why = [reason, shortage].filter(Boolean).join('; ')
  note({ amphora_id: amphoraId, action: 'configured', how: transition, ...(why === '' ? {} : { reason: why }) })
}

/** An amphora that is too small gives every listener a part of what it should have. */
function shortageIn(tree: LoadBalancerTree, { amphorae }: Observed, amphoraId: string): string | null {
  const amphora = amphorae.find(({ id }) => id === amphoraId)
  return amphora === undefined ? null : shortageOf(tree, limitsOf(amphora))
}

/** What the drain of an amphora cost, when it cost anything. */
function cutReason({ amphorae }: Observed, amphoraId: string): { reason?: string } {
  const agent = amphorae.find(({ id }) => id === amphoraId)?.agent
  const cut = agent?.state === 'answers' ? (agent.drain?.cut ?? 0) : 0
  return cut === 0 ? {} : { reason: `${cut} requests or connections outlived their time and were closed` }
}

/** For what makes leaving gentle: an amphora that cannot be reached leaves all the same. */
async function ifItCan({ parts }: Acting, amphoraId: string, without: string, act: () => Promise<void>): Promise<void> {
  try {
    await act()
  } catch (error) {
    if (error instanceof ClaimLost) throw error
    parts.log.warn({ amphora: amphoraId, err: error }, `an amphora does not answer: ${without}`)
  }
}

function targetOf({ masterKey }: AmphoraParts, { amphorae }: Observed, amphoraId: string): AgentTarget {
  const host = amphorae.find(({ id }) => id === amphoraId)?.managementAddress
  if (host === undefined || host === null) throw new Error(`Amphora ${amphoraId} has no management address`)
  return agentTarget(masterKey, amphoraId, host)
}

/** @throws ProvisioningFault `restart-limit` */
async function countRestart({ parts, tree }: Acting, amphoraId: string): Promise<void> {
  if (!(await takeRestart(parts.database, tree.projectId, amphoraId, parts.restartLimits))) throw restartLimit()
}

async function startMachine(acting: Acting, { amphoraId }: { amphoraId: string }): Promise<void> {
  // A connection to a former machine would only be found dead after a while.
  acting.parts.agents.close(amphoraId)
  const made = await makeMachine(acting.parts, { amphoraId, projectId: acting.tree.projectId }, acting.held)
  const columns = { ...machineColumns(made), unreachable_since: null }
  await updateAmphora(acting.parts.database, acting.claim, amphoraId, columns)
}

async function recordedAddress(database: Database, amphoraId: string): Promise<string | null> {
  const row = await maybeOne(
    database,
    sql<{ address: string | null }>`SELECT lb_network_ip AS address FROM amphora WHERE id = ${amphoraId}`,
  )
  return row?.address ?? null
}

async function ensurePort({ network }: AmphoraParts, request: PortRequest): Promise<Port> {
  try {
    return await network.ensurePort(request)
  } catch (error) {
    const [fixedIp] = request.fixedIps
    if (error instanceof NoAddressLeft) {
      throw new ProvisioningFault('no-address-left', `No address is left on subnet ${fixedIp?.subnetId ?? ''}.`)
    }
    if (error instanceof AddressTaken) {
      throw new ProvisioningFault('address-taken', `The address ${fixedIp?.address ?? ''} is in use by another port.`)
    }
    if (error instanceof InvalidPortRequest) throw new ProvisioningFault('network-refused', error.message)
    throw error
  }
}
