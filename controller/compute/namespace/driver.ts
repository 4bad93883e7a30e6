import { readdirSync, realpathSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Logger } from '../../log/log.js'
import { addressesOf, type Port } from '../../network/driver.js'
import type { Fabric } from '../../network/local/fabric.js'
import { createQueues } from '../../process/in-turn.js'
import type { ComputeDriver, Machine, MachineSpec, Placement, PluggedPort } from '../driver.js'
import { bootDataOf } from './boot-data.js'
import { assign, enforce, type Limits, release } from './cgroup.js'
import { inspectMachine } from './inspect-machine.js'
import { machineDirectory } from './machine-directory.js'
import { type AccountRange, endMachine, MachineError, sshdListens, startMachine } from './machine-process.js'
import { namespacesNamed, networkNamespace } from './network-namespace.js'
import { PLACEMENT } from './placement.js'

export type NamespaceDriverOptions = {
  /** Tells this installation's machines from those of others on the host. */
  instance: string
  /** Where what is known of the machines is kept, one directory each. */
  directory: string
  fabric: Pick<Fabric, 'attach' | 'detach' | 'connectedPorts'>
  /** MTU of a network, for the interfaces on it. */
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

const MANAGEMENT_INTERFACE = 'mgmt0'
/** Modes of files that the host shares with machines, as far as they are about others than owner and group. */
const READABLE = 0o004
const RUNNABLE = 0o005
const AMPHORA_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/**
 * Amphorae as namespaces of this host: each has its own network, processes, host name and a root of its own in memory, in which the
 * host's /usr is all that is shared. A machine outlives the controller. Calls for the same amphora wait for each other.
 */
export class NamespaceDriver implements ComputeDriver {
  readonly name = 'namespace'
  readonly #options: NamespaceDriverOptions
  readonly #controlGroup: string
  readonly #prefix: string
  readonly #inTurn = createQueues()

  constructor(options: NamespaceDriverOptions) {
    this.#options = options
    this.#controlGroup = `krater-${options.instance}`
    this.#prefix = `krater-${options.instance}-`
  }

  create(spec: MachineSpec): Promise<Machine & Placement> {
    return this.#inTurn(spec.amphoraId, () => this.#create(spec))
  }

  async find(amphoraId: string): Promise<Machine | null> {
    return this.#describe(amphoraId)
  }

  async list(): Promise<Machine[]> {
    const named = namespacesNamed(this.#prefix).map(name => name.slice(this.#prefix.length))
    const known = new Set([...namesIn(this.#options.directory), ...named])
    return [...known].filter(name => AMPHORA_ID.test(name)).flatMap(name => this.#describe(name) ?? [])
  }

  async inspect(amphoraId: string): ReturnType<ComputeDriver['inspect']> {
    try {
      const holder = running(this.#machineOf(amphoraId))
      return holder === null ? null : inspectMachine(holder)
    } catch {
      // A host that runs out of files, say, knows nothing of its machines: nobody may take that for a death.
      return null
    }
  }

  delete(amphoraId: string): Promise<void> {
    return this.#inTurn(amphoraId, async () => {
      const machine = this.#machineOf(amphoraId)
      await this.#takeDown(amphoraId, machine)
      machine.files.remove()
    })
  }

  plug(amphoraId: string, port: Port, projectId: string): Promise<void> {
    const { fabric, networkMtu, log } = this.#options
    return this.#inTurn(amphoraId, async () => {
      const machine = this.#machineOf(amphoraId)
      if (running(machine) === null) throw new MachineError(`The machine of amphora ${amphoraId} does not run.`)
      const attachment = {
        networkId: port.networkId,
        mtu: await networkMtu(port.networkId),
        portId: port.id,
        macAddress: port.macAddress,
        addresses: addressesOf(port),
        namespace: machine.namespace.name,
        // The agent finds the interface by its MAC address and gives it its name.
        interfaceName: `new${port.id.replaceAll('-', '').slice(0, 11)}`,
      }
      // A new interface stands once its addresses are let through; one that stands may send from new ones only afterwards.
      if (!machine.files.recordedPorts('plugged').includes(port.id)) {
        machine.files.recordPort(port.id, 'plugged', attachment.addresses)
      }
      const assigned = assign(this.#placeOf(amphoraId, projectId)).catch((error: unknown) => {
        log.warn({ amphoraId, err: error }, 'the machine does not use of the share of its project')
      })
      await Promise.all([fabric.attach(attachment), assigned])
      machine.files.recordPort(port.id, 'plugged', attachment.addresses)
    })
  }

  unplug(amphoraId: string, portId: string): Promise<void> {
    return this.#inTurn(amphoraId, async () => {
      const { files } = this.#machineOf(amphoraId)
      if (!files.recordedPorts('plugged').includes(portId)) return
      await this.#options.fabric.detach(portId)
      files.forgetPort(portId)
    })
  }

  async pluggedPorts(amphoraId: string): Promise<PluggedPort[]> {
    const machine = this.#machineOf(amphoraId)
    const recorded = running(machine) === null ? [] : machine.files.recordedPorts('plugged')
    if (recorded.length === 0) return []
    const standing = new Set(await this.#options.fabric.connectedPorts())
    return recorded
      .filter(portId => standing.has(portId))
      .map(id => ({ id, addresses: machine.files.recordedAddresses(id) }))
  }

  async brokenInterfaces(): Promise<string[]> {
    const standing = new Set(await this.#options.fabric.connectedPorts())
    return namesIn(this.#options.directory)
      .filter(name => AMPHORA_ID.test(name))
      .filter(amphoraId => {
        const machine = this.#machineOf(amphoraId)
        const recorded = machine.files.recordedPorts('plugged')
        return recorded.some(portId => !standing.has(portId)) && running(machine) !== null
      })
  }

  #machineOf(amphoraId: string): MachineParts {
    if (!AMPHORA_ID.test(amphoraId)) throw new MachineError(`Not an amphora id: ${JSON.stringify(amphoraId)}`)
    return {
      files: machineDirectory(join(this.#options.directory, amphoraId)),
      namespace: networkNamespace(`${this.#prefix}${amphoraId}`),
    }
  }

  #placeOf(machine: string, project: string | null) {
    return { instance: this.#controlGroup, project, machine }
  }

  #describe(amphoraId: string): Machine | null {
    const machine = this.#machineOf(amphoraId)
    if (!machine.files.exists() && !machine.namespace.exists()) return null
    // Before the state: one that is complete in between has not ended.
    const start = machine.files.start()
    const state = running(machine) === null ? 'stopped' : 'running'
    return { amphoraId, computeId: machine.namespace.name, state, ...(start === undefined ? {} : { start }) }
  }

  async #create(spec: MachineSpec): Promise<Machine & Placement> {
    const machine = this.#machineOf(spec.amphoraId)
    const started = performance.now()
    if (running(machine) === null) await this.#start(spec, machine)
    else await this.#attachManagement(spec, machine)
    const holder = running(machine)
    if (holder === null) throw new MachineError(`The machine ended right after its start: ${machine.files.lastWords()}`)
    const reachable = await sshdListens(holder)
    const milliseconds = Math.round(performance.now() - started)
    this.#options.log.info({ amphoraId: spec.amphoraId, reachable, milliseconds }, 'machine runs')
    return { amphoraId: spec.amphoraId, computeId: machine.namespace.name, state: 'running', ...PLACEMENT }
  }

  async #start(spec: MachineSpec, machine: MachineParts): Promise<void> {
    const { agentBundle, nodeProgram = process.execPath, limits, accounts, log } = this.#options
    const { files, namespace } = machine
    await this.#takeDown(spec.amphoraId, machine)
    files.prepare()
    files.forgetProcess()
    const keeper = await namespace.make()
    try {
      await this.#attachManagement(spec, machine)
      const { groups, inForce, lacking } = enforce(this.#placeOf(spec.amphoraId, spec.projectId), limits)
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
  }

  async #attachManagement(spec: MachineSpec, { files, namespace }: MachineParts): Promise<void> {
    const { fabric, networkMtu } = this.#options
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
      interfaceName: MANAGEMENT_INTERFACE,
      // One amphora that was taken over must not get at the others.
      isolated: true,
    })
    await namespace.configure(
      MANAGEMENT_INTERFACE,
      fixedIps.map(({ address }) => `${address}/${spec.managementPrefix}`),
    )
  }

  /** Interfaces first: that takes both ends away, even while a socket with unsent data holds the namespace. */
  async #takeDown(amphoraId: string, { files, namespace }: MachineParts): Promise<void> {
    for (const portId of files.recordedPorts()) {
      await this.#options.fabric.detach(portId)
      files.forgetPort(portId)
    }
    await endMachine(files)
    await release({ instance: this.#controlGroup, machine: amphoraId })
    await namespace.remove()
  }
}

type MachineParts = { files: ReturnType<typeof machineDirectory>; namespace: ReturnType<typeof networkNamespace> }

/** The process that holds a machine which is up and reachable by its namespace's name; null for anything less. */
function running({ files, namespace }: MachineParts): number | null {
  const holder = files.holder()
  return holder !== null && files.isReady() && namespace.holds(holder) ? holder : null
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
