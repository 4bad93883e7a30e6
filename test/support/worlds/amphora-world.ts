import { randomUUID } from 'node:crypto'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import type { AgentError, FailedUpgrade, HelloResult, ResultOf } from '../../../amphora-agent/protocol/messages.js'
import type { ComputeDriver } from '../../../controller/compute/driver.js'
import {
  addressesOf,
  type NetworkDriver,
  PORT_OWNER,
  type Port,
  type Subnet,
} from '../../../controller/network/driver.js'
import { createMachineTurns } from '../../../controller/provider/amphora/act/machine-turns.js'
import type { AgentConnections } from '../../../controller/provider/amphora/agent/connection.js'
import { AgentRefused, AgentUnreachable } from '../../../controller/provider/amphora/agent/errors.js'

/**
 * The fate of one call: it succeeds; it fails and nothing happens; it happens but the caller gets an error; the
 * caller dies during it.
 */
export type Fate = 'well' | 'fails' | 'loses-answer' | 'kills'

/** Every later call of a killed caller fails too, so that nothing it would still do can help. */
export class Killed extends Error {}

type MachineState = {
  state: 'running' | 'stopped'
  /** Neither its agent nor its HAProxy does anything. */
  hung: boolean
  /** It serves, but cannot be reached. */
  cut: boolean
  plugged: Map<string, Port>
  applied: Pick<Desired, 'generation' | 'fence' | 'sha256' | 'interfaces'> | null
  drains: boolean
  holdsVip: boolean
  /** Hash of its agent; null: an older one, which cannot be upgraded in place. */
  bundle: string | null
  failedUpgrade?: FailedUpgrade
}

export const BROKEN_AGENT = 'b'.repeat(64)

export const VIP_SUBNET = '70000000-0000-4000-8000-000000000001'
export const MEMBER_SUBNETS = [
  '70000000-0000-4000-8000-000000000002',
  '70000000-0000-4000-8000-000000000003',
  '70000000-0000-4000-8000-000000000004',
] as const
const MANAGEMENT_SUBNET = '70000000-0000-4000-8000-000000000009'

const subnet = (id: string, network: number, cidr: string): Subnet => ({
  id,
  networkId: `80000000-0000-4000-8000-00000000000${network}`,
  projectId: 'service',
  ipVersion: 4,
  cidr,
  gatewayIp: null,
  hostRoutes: [],
  overlapsManagement: false,
})

/** The second and third member subnets share a network. */
const SUBNETS = [
  subnet(VIP_SUBNET, 1, '203.0.113.0/24'),
  subnet(MEMBER_SUBNETS[0], 2, '192.0.2.0/24'),
  subnet(MEMBER_SUBNETS[1], 3, '198.51.100.0/24'),
  subnet(MEMBER_SUBNETS[2], 3, '10.9.0.0/24'),
  subnet(MANAGEMENT_SUBNET, 9, '10.0.0.0/24'),
]

export type AmphoraWorld = ReturnType<typeof createAmphoraWorld>

/**
 * Networks, machines and agents in memory, with the rules of the real ones, in which any call can be made to
 * fail.
 */
export function createAmphoraWorld() {
  const ports = new Map<string, Port>()
  const machines = new Map<string, MachineState>()
  const calls: string[] = []
  let lastHost = 10
  let isOpaque = false
  let newAgent: string | null = null

  /** One process's view of the world. @param fates of its next calls; later calls succeed */
  function enter(fates: Fate[] = []) {
    let killed = false
    async function call<T>(name: string, failure: () => Error, act: () => T): Promise<T> {
      if (killed) throw new Killed()
      calls.push(name)
      const fate = fates.shift() ?? 'well'
      if (fate === 'kills') {
        killed = true
        throw new Killed()
      }
      if (fate === 'fails') throw failure()
      const result = act()
      if (fate === 'loses-answer') throw failure()
      return result
    }
    const broken = () => new Error('broken')
    return {
      network: networkOf(call, broken),
      compute: computeOf(call, broken),
      agents: agentsOf(call),
      turns: createMachineTurns(),
    }
  }

  type Call = <T>(name: string, failure: () => Error, act: () => T) => Promise<T>

  function networkOf(call: Call, broken: () => Error): NetworkDriver {
    const lookUp = <T>(act: () => T) => call('network look-up', broken, act)
    const unused = () => Promise.reject(new Error('only for the API'))
    return {
      name: 'in memory',
      reachesHost: false,
      findNetwork: unused,
      findSubnet: unused,
      findPort: unused,
      findSecurityGroup: null,
      findQosPolicy: null,
      subnetOf: unused,
      freeAddresses: unused,
      network: id =>
        lookUp(() => ({
          id,
          projectId: 'service',
          shared: true,
          mtu: 1450,
          isPhysical: false,
          subnetIds: SUBNETS.filter(known => known.networkId === id).map(known => known.id),
        })),
      subnets: ids => lookUp(() => SUBNETS.filter(known => ids.includes(known.id))),
      port: id => lookUp(() => ports.get(id) ?? null),
      ensurePort: request =>
        call('ensurePort', broken, () => {
          const existing = [...ports.values()].find(
            port =>
              port.deviceId === request.deviceId &&
              port.deviceOwner === request.deviceOwner &&
              port.name === request.name,
          )
          if (existing !== undefined) {
            const isMissing = (one: { subnetId: string }) =>
              existing.fixedIps.every(fixedIp => fixedIp.subnetId !== one.subnetId)
            const added = request.fixedIps.filter(isMissing)
            const fixedIps = added.map(({ subnetId }) => ({ subnetId, address: addressOn(subnetId) }))
            const grown = { ...existing, fixedIps: [...existing.fixedIps, ...fixedIps] }
            ports.set(grown.id, grown)
            return grown
          }
          const id = randomUUID()
          const port: Port = {
            ...request,
            allowedAddresses: [...(request.allowedAddresses ?? [])],
            securityGroups: [],
            id,
            macAddress: `fa:16:3e:${id.slice(0, 6).replace(/../g, '$&:').slice(0, 8)}`,
            fixedIps: request.fixedIps.map(({ subnetId, address }) => ({
              subnetId,
              address: address ?? addressOn(subnetId),
            })),
          }
          ports.set(id, port)
          return port
        }),
      bindPort: async () => undefined,
      setSecurityGroups: (id, securityGroups) =>
        call('setSecurityGroups', broken, () => {
          const port = ports.get(id)
          if (port !== undefined) ports.set(id, { ...port, securityGroups: [...securityGroups] })
        }),
      releaseAddresses: (id, subnetIds) =>
        call('releaseAddresses', broken, () => {
          const port = ports.get(id)
          if (port === undefined) return
          const fixedIps = port.fixedIps.filter(({ subnetId }) => !subnetIds.includes(subnetId))
          ports.set(id, { ...port, fixedIps })
        }),
      deletePort: id => call('deletePort', broken, () => void ports.delete(id)),
      portsOwnedBy: async owner => [...ports.values()].filter(port => port.deviceOwner === owner),
      boundPorts: async () => [],
      portsOf: device => lookUp(() => [...ports.values()].filter(port => port.deviceId === device)),
      managementNetwork: async () => ({
        network: {
          id: SUBNETS[4]!.networkId,
          projectId: 'service',
          shared: false,
          mtu: 1500,
          subnetIds: [],
          isPhysical: false,
        },
        subnet: SUBNETS[4]!,
        controllerAddress: '10.0.0.1',
      }),
    }
  }

  function addressOn(subnetId: string): string {
    const found = SUBNETS.find(({ id }) => id === subnetId)
    if (found === undefined) throw new Error(`no subnet ${subnetId}`)
    lastHost += 1
    return found.cidr.replace('.0/24', `.${lastHost}`)
  }

  function computeOf(call: Call, broken: () => Error): ComputeDriver {
    const runningOf = (id: string) => {
      const machine = machines.get(id)
      if (machine?.state !== 'running') throw new Error(`the machine of ${id} does not run`)
      return machine
    }
    const describe = (amphoraId: string, { state }: MachineState) => ({
      amphoraId,
      driver: 'namespace',
      computeId: amphoraId,
      name: `m-${amphoraId}`,
      state,
    })
    return {
      name: 'in memory',
      create: ({ amphoraId, placement }) =>
        call('create', broken, () => {
          const before = machines.get(amphoraId)
          const machine: MachineState =
            before?.state === 'running'
              ? before
              : { state: 'running', hung: false, cut: false, bundle: newAgent, ...newlyStarted() }
          machines.set(amphoraId, machine)
          return { ...describe(amphoraId, machine), zone: placement.zone ?? 'here', image: null }
        }),
      find: id =>
        call('find', broken, () => {
          const machine = machines.get(id)
          return machine === undefined ? null : describe(id, machine)
        }),
      inspect: async id => {
        const machine = machines.get(id)
        if (machine?.state !== 'running' || isOpaque) return null
        return { serves: !machine.hung && machine.applied !== null, forwards: false, finding: '' }
      },
      list: async () => [...machines].map(([id, machine]) => describe(id, machine)),
      delete: id => call('delete', broken, () => void machines.delete(id)),
      plug: (id, port) =>
        call('plug', broken, () => {
          runningOf(id).plugged.set(port.id, port)
          return { id: port.id, addresses: addressesOf(port) }
        }),
      unplug: (id, portId) => call('unplug', broken, () => void machines.get(id)?.plugged.delete(portId)),
      pluggedPorts: id =>
        call('pluggedPorts', broken, () =>
          [...(machines.get(id)?.plugged.values() ?? [])].map(port => ({ id: port.id, addresses: addressesOf(port) })),
        ),
      brokenInterfaces: async () => [],
    }
  }

  function agentsOf(call: Call): AgentConnections {
    return {
      request: ({ amphoraId }, body) => {
        const desired = (body as { desired?: Desired }).desired ?? null
        const unreachable = () => new AgentUnreachable(amphoraId, 'no-answer', 'no answer')
        return call(body.verb, unreachable, () => {
          const machine = machines.get(amphoraId)
          if (machine?.state !== 'running' || machine.hung || machine.cut) throw unreachable()
          const refuse = (code: AgentError['code']) =>
            new AgentRefused(amphoraId, { code, message: `refused: ${code}`, details: '' })
          if (body.verb === 'drain') machine.drains = true
          if (body.verb === 'upgrade') {
            upgrade(machine, (body as { sha256?: string }).sha256 ?? '')
            return { trialSeconds: 1 } as ResultOf[typeof body.verb]
          }
          if (body.verb === 'status') return statusOf(machine) as ResultOf[typeof body.verb]
          const answer = desired === null ? hello(machine) : apply(machine, desired, refuse)
          return answer as ResultOf[typeof body.verb]
        })
      },
      relay: async () => {
        throw new Error('these amphorae serve nothing')
      },
      close: () => undefined,
      stop: async () => undefined,
    }
  }

  return {
    enter,
    ports,
    machines,
    /** The names of all calls so far. */
    calls,
    /** The machine stops by itself. */
    stopMachine: (id: string) => {
      const machine = machines.get(id)
      if (machine !== undefined) machines.set(id, { ...machine, state: 'stopped', ...newlyStarted() })
    },
    /** Cuts or restores the management network of one machine, which serves all the time. */
    cut: (id: string, cut = true) => {
      const machine = machines.get(id)
      if (machine !== undefined) machine.cut = cut
    },
    /** From now on, machines cannot be inspected. */
    makeOpaque: () => {
      isOpaque = true
    },
    /** The machine keeps running, but nothing in it works. */
    hangAgent: (id: string) => {
      const machine = machines.get(id)
      if (machine !== undefined) machine.hung = true
    },
    /** Which agent new machines have; null: one that cannot be upgraded in place. */
    bringAgent: (bundle: string | null) => {
      newAgent = bundle
    },
    portsOwnedBy: (owner: keyof typeof PORT_OWNER) =>
      [...ports.values()].filter(port => port.deviceOwner === PORT_OWNER[owner]),
  }
}

const newlyStarted = () => ({ plugged: new Map<string, Port>(), applied: null, drains: false, holdsVip: false })

function statusOf(machine: MachineState): ResultOf['status'] {
  return {
    ...hello(machine),
    haproxy: { running: true, pid: 1, workers: 1 },
    interfaces: (machine.applied?.interfaces ?? []).map(({ name, mac, vips }) => ({
      name,
      mac,
      addresses: vips.map(({ address }) => address),
    })),
    uptimeSeconds: 1,
  }
}

/** An agent whose hash is BROKEN_AGENT does not come up. */
function upgrade(machine: MachineState, sha256: string): void {
  if (sha256 === BROKEN_AGENT) machine.failedUpgrade = { sha256, output: 'It died.' }
  else machine.bundle = sha256
}

function hello({ applied, drains, holdsVip, bundle, failedUpgrade }: MachineState): HelloResult {
  return {
    agentVersion: 'test',
    protocolVersion: 1,
    ...(bundle !== null && { bundle, failedUpgrade }),
    bootId: '0'.repeat(16),
    haproxyVersion: '2.6.12',
    keepalivedVersion: '2.2.7',
    appliedGeneration: applied?.generation ?? 0,
    appliedSha256: applied?.sha256 ?? null,
    holdsVip,
    drain: drains ? { ended: true, cut: 0 } : null,
    leavingSeconds: 0,
  }
}

function apply(machine: MachineState, desired: Desired, refuse: (code: AgentError['code']) => Error) {
  const { applied } = machine
  if (applied !== null && desired.fence < applied.fence) throw refuse('stale-fence')
  if (applied !== null && desired.generation < applied.generation) throw refuse('stale-generation')
  const macs = [...machine.plugged.values()].map(port => port.macAddress)
  if (!desired.interfaces.every(({ mac }) => macs.includes(mac))) throw refuse('interface-missing')
  const { generation, fence, sha256, interfaces } = desired
  machine.applied = { generation, fence, sha256, interfaces }
  return {
    appliedGeneration: desired.generation,
    appliedSha256: desired.sha256,
    transition: 'reload' as const,
    reason: 'test',
    milliseconds: 1,
  }
}
