import { readdirSync, realpathSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Boot } from '../../../amphora-agent/protocol/boot.js'
import { AGENT_SOCKET } from '../../../amphora-agent/protocol/messages.js'
import { seccompLauncher } from '../../../amphora-agent/seccomp/launcher.js'
import { MACHINE_RULES } from '../../../amphora-agent/seccomp/rules.js'
import type { Logger } from '../../log/log.js'
import type { Fabric } from '../../network/local/fabric.js'
import { createQueues } from '../../process/in-turn.js'
import type { ComputeDriver, Machine, MachineSpec } from '../driver.js'
import { assign, enforce, type Limits, release } from './cgroup.js'
import { inspectMachine } from './inspect-machine.js'
import { machineDirectory } from './machine-directory.js'
import {
  type AccountRange,
  type BootData,
  endMachine,
  MachineError,
  sshdListens,
  startMachine,
} from './machine-process.js'
import { namespacesNamed, networkNamespace } from './network-namespace.js'

export type NamespaceDriverOptions = {
  /** Tells this installation's machines from those of others on the host. */
  instance: string
  /** Where what is known of the machines is kept, one directory each. */
  directory: string
  fabric: Pick<Fabric, 'attach' | 'detach' | 'standingPorts'>
  /** MTU of a network, for the cards on it. */
  networkMtu: (networkId: string) => Promise<number>
  /** The agent, bundled into one ES module. */
  agentBundle: string
  /** The Node.js program that runs it; the one that runs this when not given. */
  nodeProgram?: string
  /** What each machine may use of the host. */
  limits: Limits
  accounts: AccountRange
  log: Logger
}

const MANAGEMENT_CARD = 'mgmt0'
/** Modes of files that the host shares with machines, as far as they are about others than owner and group. */
const READABLE = 0o004
const RUNNABLE = 0o005
const AMPHORA_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/**
 * Amphorae as namespaces of this host: each has its own network, processes, host name and a root of its own in memory, in which the
 * host's /usr is all that is shared. A machine outlives the controller. Calls for the same amphora wait for each other.
 */
export function createNamespaceDriver(options: NamespaceDriverOptions): ComputeDriver {
  const { instance, directory, fabric, networkMtu, agentBundle, nodeProgram = process.execPath, log } = options
  const { limits, accounts } = options
  const controlGroup = `krater-${instance}`
  const placeOf = (machine: string, project: string | null) => ({ instance: controlGroup, project, machine })
  const prefix = `krater-${instance}-`
  const inTurn = createQueues()

  const machineOf = (amphoraId: string) => {
    if (!AMPHORA_ID.test(amphoraId)) throw new MachineError(`Not an amphora id: ${JSON.stringify(amphoraId)}`)
    return {
      files: machineDirectory(join(directory, amphoraId)),
      namespace: networkNamespace(`${prefix}${amphoraId}`),
    }
  }

  /** The process that holds a machine which is up and reachable by its namespace's name; null for anything less. */
  const running = ({ files, namespace }: ReturnType<typeof machineOf>): number | null => {
    const holder = files.holder()
    return holder !== null && files.isReady() && namespace.holds(holder) ? holder : null
  }

  const describe = (amphoraId: string): Machine | null => {
    const machine = machineOf(amphoraId)
    if (!machine.files.exists() && !machine.namespace.exists()) return null
    // Before the state: one that is complete in between has not ended.
    const start = machine.files.start()
    const state = running(machine) === null ? 'stopped' : 'running'
    return { amphoraId, computeId: machine.namespace.name, state, ...(start === undefined ? {} : { start }) }
  }

  async function attachManagement(spec: MachineSpec): Promise<void> {
    const { files, namespace } = machineOf(spec.amphoraId)
    const { id, networkId, macAddress, fixedIps } = spec.managementPort
    files.recordPort(id, 'management')
    await fabric.attach({
      networkId,
      mtu: await networkMtu(networkId),
      portId: id,
      // The same at each start, so that the controller's neighbour entry stays right.
      macAddress,
      addresses: fixedIps.map(({ address }) => address),
      namespace: namespace.name,
      interfaceName: MANAGEMENT_CARD,
      // One amphora that was taken over must not get at the others.
      isolated: true,
    })
    await namespace.configure(
      MANAGEMENT_CARD,
      fixedIps.map(({ address }) => `${address}/${spec.managementPrefix}`),
    )
  }

  /** Cards first: that takes both ends away, even while a socket with unsent data holds the namespace. */
  async function takeDown(amphoraId: string, { files, namespace }: ReturnType<typeof machineOf>): Promise<void> {
    for (const portId of files.recordedPorts()) {
      await fabric.detach(portId)
      files.forgetPort(portId)
    }
    await endMachine(files)
    await release({ instance: controlGroup, machine: amphoraId })
    await namespace.remove()
  }

  async function create(spec: MachineSpec): Promise<Machine> {
    const machine = machineOf(spec.amphoraId)
    const { files, namespace } = machine
    const started = performance.now()
    if (running(machine) === null) {
      await takeDown(spec.amphoraId, machine)
      files.prepare()
      files.forgetProcess()
      const keeper = await namespace.make()
      try {
        await attachManagement(spec)
        const { groups, inForce, lacking } = enforce(placeOf(spec.amphoraId, spec.projectId), limits)
        for (const { what, why } of lacking) log.warn({ amphoraId: spec.amphoraId, why }, `no limit of ${what}`)
        await startMachine({
          directory: files,
          keeper: keeper.pid,
          node: shareable(nodeProgram, RUNNABLE),
          agentBundle: shareable(agentBundle, READABLE),
          bootData: bootDataOf(spec, inForce),
          accounts,
          accountHint: Number.parseInt(spec.amphoraId.slice(0, 8), 16),
          groups,
        })
      } finally {
        keeper.end()
      }
    } else {
      await attachManagement(spec)
    }
    const holder = running(machine)
    if (holder === null) throw new MachineError(`The machine ended right after its start: ${files.lastWords()}`)
    const reachable = await sshdListens(holder)
    const milliseconds = Math.round(performance.now() - started)
    log.info({ amphoraId: spec.amphoraId, reachable, milliseconds }, 'machine runs')
    return { amphoraId: spec.amphoraId, computeId: namespace.name, state: 'running' }
  }

  return {
    name: 'namespace',

    create: spec => inTurn(spec.amphoraId, () => create(spec)),

    find: async amphoraId => describe(amphoraId),

    list: async () => {
      const known = [...namesIn(directory), ...namespacesNamed(prefix).map(name => name.slice(prefix.length))]
      return [...new Set(known)].filter(name => AMPHORA_ID.test(name)).flatMap(name => describe(name) ?? [])
    },

    inspect: async amphoraId => {
      try {
        const holder = running(machineOf(amphoraId))
        return holder === null ? null : inspectMachine(holder)
      } catch {
        // A host that runs out of files, say, knows nothing of its machines: nobody may take that for a death.
        return null
      }
    },

    delete: amphoraId =>
      inTurn(amphoraId, async () => {
        const machine = machineOf(amphoraId)
        await takeDown(amphoraId, machine)
        machine.files.remove()
      }),

    plug: (amphoraId, port, projectId) =>
      inTurn(amphoraId, async () => {
        const machine = machineOf(amphoraId)
        if (running(machine) === null) throw new MachineError(`The machine of amphora ${amphoraId} does not run.`)
        machine.files.recordPort(port.id, 'plugged')
        const card = {
          networkId: port.networkId,
          mtu: await networkMtu(port.networkId),
          portId: port.id,
          macAddress: port.macAddress,
          addresses: [...port.fixedIps.map(({ address }) => address), ...port.allowedAddresses],
          namespace: machine.namespace.name,
          // The agent finds the card by its MAC address and gives it its name.
          interfaceName: `new${port.id.replaceAll('-', '').slice(0, 11)}`,
        }
        const assigned = assign(placeOf(amphoraId, projectId)).catch((error: unknown) => {
          log.warn({ amphoraId, err: error }, 'the machine does not use of the share of its project')
        })
        await Promise.all([fabric.attach(card), assigned])
      }),

    unplug: (amphoraId, portId) =>
      inTurn(amphoraId, async () => {
        const { files } = machineOf(amphoraId)
        if (!files.recordedPorts('plugged').includes(portId)) return
        await fabric.detach(portId)
        files.forgetPort(portId)
      }),

    pluggedPorts: async amphoraId => {
      const machine = machineOf(amphoraId)
      const recorded = running(machine) === null ? [] : machine.files.recordedPorts('plugged')
      if (recorded.length === 0) return []
      const standing = new Set(await fabric.standingPorts())
      return recorded.filter(portId => standing.has(portId))
    },

    brokenCards: async () => {
      const standing = new Set(await fabric.standingPorts())
      return namesIn(directory)
        .filter(name => AMPHORA_ID.test(name))
        .filter(amphoraId => {
          const machine = machineOf(amphoraId)
          const recorded = machine.files.recordedPorts('plugged')
          return recorded.some(portId => !standing.has(portId)) && running(machine) !== null
        })
    },
  }
}

function bootDataOf(
  { amphoraId, managementPort, identity, healthManagers, beatIntervalSeconds }: MachineSpec,
  limits: Partial<Limits>,
): BootData {
  const [first] = managementPort.fixedIps
  if (first === undefined) throw new MachineError(`The management port ${managementPort.id} has no address.`)
  const boot: Boot = {
    amphoraId,
    heartbeatKey: identity.heartbeatKey.toString('hex'),
    heartbeatKeyId: identity.heartbeatKeyId,
    healthManagers,
    beatIntervalSeconds,
    limits,
  }
  return {
    'host-key': identity.sshHostKey,
    // The agent's socket is left, as in sshd_config, which refuses all else once more.
    'controller-key': `restrict,port-forwarding,permitopen="[${AGENT_SOCKET}]:*" ${identity.controllerPublicKey.trim()}\n`,
    'operator-key': `${identity.operatorPublicKey.trim()}\n`,
    boot: JSON.stringify(boot),
    'management-address': `${first.address}\n`,
    hostname: `amphora-${amphoraId}\n`,
    seccomp: seccompLauncher(MACHINE_RULES, process.arch),
  }
}

/** A file's real path. @throws MachineError when a machine's root, who is not the host's, could not use it */
function shareable(file: string, mode: number): string {
  const path = realpathSync(file)
  if ((statSync(path).mode & mode) !== mode) throw new MachineError(`Amphorae may not use ${path}: chmod o+rX it.`)
  return path
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
