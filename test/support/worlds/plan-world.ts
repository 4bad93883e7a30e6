import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import type { AmphoraDrain } from '../../../amphora-agent/protocol/handover.js'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import type { Port } from '../../../controller/network/driver.js'
import type { AmphoraRow, Observed, ObservedAmphora } from '../../../controller/provider/amphora/plan/observation.js'
import { plan } from '../../../controller/provider/amphora/plan/plan.js'
import type { Plan, Step } from '../../../controller/provider/amphora/plan/step.js'
import { rolesOf } from '../../../controller/provider/amphora/plan/topology.js'
import { uuid } from '../../golden/models.js'
import { createTree, facts, MEMBER_SUBNET, SECOND_SUBNET, SUBNETS, VIP_PORT } from './plan-scene.js'

type Machine = {
  hung: boolean
  plugged: Set<string>
  applied: Desired | null
  drain: AmphoraDrain | null
  /** Members that left still have open requests, on interfaces that are no longer desired. */
  leavingSeconds: number
}
type Amphora = { row: AmphoraRow; machine: Machine | null; ports: Port[] }

/** Longer than a single observation. */
const LEAVING_SECONDS = 5

/**
 * One load balancer whose plans are executed effect by effect, so that a worker may die between any two. A
 * model, not a copy: it repeats what a step does to rows, machines and ports without the executors, so that
 * stories can judge the plans.
 */
export function createPlanWorld(first: LoadBalancerTree) {
  let tree = first
  let memberSubnet: string | null = null
  const amphorae = new Map<string, Amphora>()
  let lastNumber = 0
  /** True once it is in service: from then on, an amphora must always serve, unless there was harm from outside. */
  let served = false
  let harmed = false
  let cut = false

  const observe = (): Observed => ({
    amphorae: [...amphorae.values()].map(observationOf),
    vipPort: VIP_PORT,
    subnets: SUBNETS,
    mtus: new Map(),
  })

  /** The effects of a step in order; a worker may die at each of them. */
  function effectsOf(step: Step): (() => void)[] {
    switch (step.kind) {
      case 'allocate-amphora':
        return [() => insert(step.role)]
      case 'create-machine':
      case 'restart-machine':
        return [
          ...(step.kind === 'restart-machine' ? [() => kill(step.amphoraId)] : []),
          () => {
            const amphora = known(step.amphoraId)
            amphora.machine ??= { hung: false, plugged: new Set(), applied: null, drain: null, leavingSeconds: 0 }
            amphora.row.managementAddress = '10.0.0.9'
          },
        ]
      case 'replace-amphora':
        return [() => set(known(step.amphoraId).row, { replacing: true })]
      case 'attach-port':
        return [() => ensurePort(step), () => known(step.amphoraId).machine?.plugged.add(ensurePort(step).id)]
      case 'await-agent':
        return [() => set(known(step.amphoraId).row, { status: 'ALLOCATED' })]
      case 'apply':
        return [() => tell(step.amphoraId, step.desired), () => record(step.amphoraId, step.desired)]
      case 'silence-amphora': {
        const { amphoraId, portId } = step
        return [
          () => set(known(amphoraId).row, { status: 'PENDING_DELETE' }),
          ...(portId === null ? [] : [() => known(amphoraId).machine?.plugged.delete(portId)]),
        ]
      }
      case 'demote-amphora': {
        const { amphoraId, standby } = step
        return [
          () => set(known(amphoraId).row, { status: 'PENDING_DELETE' }),
          () => tell(amphoraId, standby),
          () => record(amphoraId, standby),
        ]
      }
      case 'drain-amphora':
        return [() => drain(step.amphoraId), () => drain(step.amphoraId)]
      case 'await-leaving':
        return [() => endLeaving(step.amphoraId, 1)]
      case 'observe-again':
        return [
          () => [...amphorae.keys()].forEach(endDrain),
          () => {
            for (const id of amphorae.keys()) endLeaving(id, step.seconds)
          },
        ]
      case 'detach-port':
        return [() => detach(step.amphoraId, step.portId)]
      case 'shrink-port':
        return [() => shrink(step.amphoraId, step.portId, step.subnetIds)]
      case 'delete-machine':
        return [
          () => set(known(step.amphoraId).row, { status: 'PENDING_DELETE' }),
          () => set(known(step.amphoraId), { machine: null }),
        ]
      case 'delete-ports':
        return [() => set(known(step.amphoraId), { ports: [] })]
      case 'delete-amphora-row':
        return [() => void amphorae.delete(step.amphoraId)]
      case 'upgrade-agent':
      case 'begin-handover':
      case 'await-vip':
      case 'announce-vip':
      case 'ensure-vip-port':
      case 'filter-vip-port':
      case 'release-vip-port':
        return []
    }
  }

  const set = <T extends object>(object: T, values: Partial<T>) => void Object.assign(object, values)

  const known = (id: string): Amphora => {
    const amphora = amphorae.get(id)
    if (amphora === undefined) throw new Error(`a step for ${id}, which does not exist`)
    return amphora
  }

  function insert(role: AmphoraRow['role']) {
    lastNumber += 1
    const id = uuid(6, lastNumber)
    const row: AmphoraRow = {
      id,
      role,
      status: 'BOOTING',
      managementAddress: null,
      appliedGeneration: 0,
      appliedSha256: null,
      silentSeconds: 99,
      heardSeconds: null,
      unreachableSeconds: 0,
      mismatchedSeconds: 0,
      needsApply: false,
      replacing: false,
      upgradeTo: null,
      upgradeFailed: null,
      heldVip: false,
    }
    amphorae.set(id, { row, machine: null, ports: [] })
  }

  function ensurePort({ amphoraId, port: { request } }: Extract<Step, { kind: 'attach-port' }>): Port {
    const amphora = known(amphoraId)
    const fixedIps = request.fixedIps.map(({ subnetId }) => ({ subnetId, address: addressOn(subnetId, amphoraId) }))
    const before = amphora.ports.find(port => port.name === request.name)
    if (before !== undefined) {
      const has = (subnetId: string) => before.fixedIps.some(fixedIp => fixedIp.subnetId === subnetId)
      before.fixedIps.push(...fixedIps.filter(({ subnetId }) => !has(subnetId)))
      return before
    }
    const number = request.name.includes('vrrp') ? 0 : 1
    const id = `${amphoraId.slice(-2)}${number}00000-0000-4000-8000-000000000000`
    const port: Port = {
      ...request,
      allowedAddresses: [],
      securityGroups: [],
      id,
      projectId: '',
      macAddress: `fa:16:3e:00:${amphoraId.slice(-2)}:0${number}`,
      fixedIps,
    }
    amphora.ports.push(port)
    return port
  }

  function tell(id: string, desired: Desired) {
    const { machine } = known(id)
    if (machine === null || machine.hung) return
    const { applied } = machine
    if (applied !== null && serversOf(applied) !== serversOf(desired)) machine.leavingSeconds = LEAVING_SECONDS
    for (const { mac, addresses } of applied?.interfaces ?? []) {
      const stays = desired.interfaces.find(iface => iface.mac === mac)
      const loses = stays !== undefined && addresses.some(address => !stays.addresses.includes(address))
      if (loses && machine.leavingSeconds > 0) cut = true
    }
    machine.applied = desired
  }

  function detach(id: string, portId: string) {
    const amphora = known(id)
    const { machine } = amphora
    if (machine !== null && !machine.hung && machine.plugged.has(portId) && machine.leavingSeconds > 0) cut = true
    machine?.plugged.delete(portId)
    amphora.ports = amphora.ports.filter(port => port.id !== portId)
  }

  function shrink(id: string, portId: string, subnetIds: readonly string[]) {
    const port = known(id).ports.find(one => one.id === portId)
    if (port !== undefined) port.fixedIps = port.fixedIps.filter(({ subnetId }) => !subnetIds.includes(subnetId))
  }

  function endLeaving(id: string, seconds: number) {
    const machine = amphorae.get(id)?.machine
    if (machine) machine.leavingSeconds = Math.max(0, machine.leavingSeconds - seconds)
  }

  /** The first call begins the drain, the second ends it. */
  function drain(id: string) {
    const { machine } = known(id)
    if (machine === null || machine.hung) return
    machine.drain = { ended: machine.drain !== null, cut: 0 }
  }

  function endDrain(id: string) {
    const { machine } = known(id)
    if (machine !== null && machine.drain !== null) machine.drain.ended = true
  }

  function record(id: string, { generation, sha256 }: Desired) {
    Object.assign(known(id).row, { appliedGeneration: generation, appliedSha256: sha256 })
  }

  function kill(id: string) {
    known(id).machine = null
  }

  /** Amphorae that hold the VIP, or may take it by VRRP. */
  const holders = () =>
    [...amphorae.values()].flatMap(({ row, machine, ports }) => {
      const applied = machine?.applied
      const base = ports.find(port => port.name.includes('vrrp'))
      if (!machine || !applied || base === undefined || !machine.plugged.has(base.id)) return []
      if (machine.drain !== null) return []
      const isHolder = applied.keepalived !== null || (tree.topology === 'SINGLE' && hasVip(applied))
      return isHolder ? [{ row, applied, address: base.fixedIps[0]?.address ?? '' }] : []
    })

  /** What must never happen, whoever dies when. */
  function faults(): string[] {
    const found: string[] = []
    const serving = holders()
    if (serving.length > 0) served = true
    if (served && serving.length === 0 && !harmed) found.push('no amphora serves any more')
    if (cut) found.push('an interface was removed while members that left had open requests')
    for (const role of rolesOf(tree.topology)) {
      const successors = [...amphorae.values()].filter(
        ({ row }) => row.role === role && !row.replacing && row.status !== 'PENDING_DELETE',
      )
      if (successors.length > 1) found.push(`${successors.length} amphorae for the role ${role}`)
    }
    if (tree.topology === 'SINGLE' || harmed) return found
    for (const one of serving) {
      for (const other of serving) {
        if (one !== other && !one.applied.keepalived?.text.includes(other.address)) {
          found.push(`${one.row.id} and ${other.row.id} may both take the VIP`)
        }
      }
    }
    return found
  }

  return {
    plan: (): Plan => plan(tree, observe(), facts()),
    effectsOf,
    faults,
    ids: () => [...amphorae.keys()],
    change: () => {
      tree = { ...tree, generation: tree.generation + 1 }
    },
    /** Its only member moves to another subnet, or to none. */
    moveMember: (pick: number) => {
      memberSubnet = [null, MEMBER_SUBNET, SECOND_SUBNET].filter(id => id !== memberSubnet)[pick % 2]!
      const { pools } = createTree({}, [memberSubnet])
      // Another server, on whichever subnet.
      pools[0]!.members[0]!.address = `203.0.113.${SUBNETS.findIndex(({ id }) => id === memberSubnet) + 1}`
      tree = { ...tree, pools, generation: tree.generation + 1 }
    },
    /** What a failover request means: each amphora is replaced, unless one with its role is being replaced. */
    failOver: () => {
      tree = { ...tree, generation: tree.generation + 1 }
      const rows = [...amphorae.values()].map(({ row }) => row).filter(row => row.status !== 'PENDING_DELETE')
      const leavingRoles = rows.filter(row => row.replacing).map(row => row.role)
      for (const row of rows) if (!leavingRoles.includes(row.role)) row.replacing = true
    },
    harm: (kind: 'kill' | 'hang', pick: number) => {
      const [id] = [...amphorae.keys()].slice(pick % Math.max(1, amphorae.size))
      const machine = id === undefined ? null : known(id).machine
      if (id === undefined || machine === null) return
      harmed = true
      if (kind === 'kill') kill(id)
      else machine.hung = true
    },
    /** What is wrong when nothing is left to do. */
    unfinished: (): string[] => {
      const rows = [...amphorae.values()]
      const roles = rows.map(({ row }) => row.role)
      const found = String(roles.sort()) === String([...rolesOf(tree.topology)].sort()) ? [] : [`roles: ${roles}`]
      for (const { row, machine, ports } of rows) {
        if (row.replacing || row.status !== 'ALLOCATED') found.push(`${row.id} is left`)
        if (machine?.applied?.generation !== tree.generation) found.push(`${row.id} is not up to date`)
        const reached = ports.filter(({ id }) => machine?.plugged.has(id)).flatMap(({ fixedIps }) => fixedIps)
        const subnets = reached.map(({ subnetId }) => subnetId).sort()
        const desired = [SUBNETS[0]!.id, ...(memberSubnet === null ? [] : [memberSubnet])].sort()
        if (String(subnets) !== String(desired)) found.push(`${row.id} reaches ${subnets}, not ${desired}`)
      }
      if (holders().length !== roles.length) found.push('one amphora does not hold the VIP')
      return found
    },
  }
}

const addressOn = (subnetId: string, amphoraId: string): string =>
  SUBNETS.find(subnet => subnet.id === subnetId)!.cidr.replace('.0/24', `.${100 + Number(amphoraId.slice(-2))}`)

const serversOf = ({ haproxy }: Desired): string =>
  String(haproxy?.backends.flatMap(({ servers }) => servers.map(({ name, address }) => `${name} ${address}`)))

const hasVip = ({ interfaces }: Desired) => interfaces.some(({ vips }) => vips.length > 0)

function observationOf({ row, machine, ports }: Amphora): ObservedAmphora {
  const applied = machine?.applied ?? null
  return {
    ...row,
    machine: machine === null ? 'absent' : 'running',
    ports: [...ports],
    plugged: [...(machine?.plugged ?? [])],
    interfaces: [],
    patienceSeconds: 0,
    canBeCutOff: true,
    serves: machine === null ? null : !machine.hung && applied !== null,
    agent:
      machine === null || machine.hung
        ? { state: 'unreachable' }
        : {
            state: 'answers',
            haproxyVersion: '2.6.12',
            appliedGeneration: applied?.generation ?? 0,
            appliedSha256: applied?.sha256 ?? null,
            drain: machine.drain,
            leavingSeconds: machine.leavingSeconds,
          },
  }
}
