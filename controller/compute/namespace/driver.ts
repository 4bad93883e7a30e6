import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Logger } from '../../log/log.js'
import { addressesOf, type Port } from '../../network/driver.js'
import type { Fabric } from '../../network/local/fabric.js'
import { namespacesNamed } from '../../network/local/namespace.js'
import type { Filters } from '../../network/local/security-groups/filters.js'
import { createQueues } from '../../process/in-turn.js'
import {
  type ComputeDriver,
  type CreatedMachine,
  LOCAL_ZONE,
  type Machine,
  type MachineSpec,
  type PluggedPort,
} from '../driver.js'
import { createBootData } from '../host/boot-data.js'
import { assign, enforce, type Limits, release } from '../host/cgroup.js'
import { type AccountRange, endMachine } from '../host/holder.js'
import { machineDirectory } from '../host/machine-directory.js'
import { MachineError } from '../host/machine-error.js'
import { networkNamespace } from '../host/network-namespace.js'
import { EXECUTABLE, READABLE, shareable } from '../host/shareable.js'
import { inspectMachine } from './inspect-machine.js'
import { sshdListens, startMachine } from './machine-process.js'
import type { RootImage } from './root-image.js'

export type NamespaceDriverOptions = {
  /** Distinguishes this installation's machines from others on the host. */
  instance: string
  /** Parent of the machines' directories. */
  directory: string
  fabric: Pick<Fabric, 'attach' | 'detach' | 'connectedPorts'>
  /** MTU for interfaces on a network. */
  networkMtu: (networkId: string) => Promise<number>
  /** What a port may send and receive; null: everything. In force before the port is plugged in. */
  portFilters: (portId: string) => Promise<Filters | null>
  /** The agent, bundled into one ES module. */
  agentBundle: string
  /** Node.js binary for the agent; default: this process's own. */
  nodeProgram?: string
  /**
   * The image with a tag (null: the standard one) whose root file system a machine shares, with its programs and agent;
   * null: its host's. Default: always its host's.
   */
  findImage?: (tag: string | null) => RootImage | null
  /** Resources of the host that a machine may use if its flavor says nothing. */
  limits: Limits
  accounts: AccountRange
  log: Logger
}

const MANAGEMENT_INTERFACE = 'mgmt0'
const MIB = 1024 * 1024
const AMPHORA_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/**
 * Runs amphorae in namespaces of this host: each has its own network, processes, host name and in-memory root,
 * which shares only /usr, that of an image or the host's. A machine outlives the controller. Calls for the same amphora run one after
 * another.
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

  create(spec: MachineSpec): Promise<CreatedMachine> {
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
      const machine = this.#machineOf(amphoraId)
      const holder = running(machine)
      return holder === null ? null : await inspectMachine(holder, machine.namespace.name)
    } catch {
      // A failed inspection, for example with too many open files, must not look like a dead machine.
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

  plug(amphoraId: string, port: Port, projectId: string): Promise<PluggedPort> {
    const { fabric, networkMtu, portFilters, log } = this.#options
    return this.#inTurn(amphoraId, async () => {
      const machine = this.#machineOf(amphoraId)
      if (running(machine) === null) throw new MachineError(`The machine of amphora ${amphoraId} is not running.`)
      const attachment = {
        networkId: port.networkId,
        mtu: await networkMtu(port.networkId),
        portId: port.id,
        macAddress: port.macAddress,
        addresses: addressesOf(port),
        filters: await portFilters(port.id),
        namespace: machine.namespace.name,
        // The agent finds the interface by its MAC address and renames it.
        interfaceName: `new${port.id.replaceAll('-', '').slice(0, 11)}`,
      }
      // A new interface is recorded first: it counts as connected only once its addresses are allowed. For an existing
      // one, new addresses are recorded only after they are allowed.
      if (!machine.files.recordedPorts('plugged').includes(port.id)) {
        machine.files.recordPort(port.id, 'plugged', attachment.addresses)
      }
      const assigned = assign(this.#placeOf(amphoraId, projectId)).catch((error: unknown) => {
        log.warn({ amphoraId, err: error }, 'moving the machine to its project’s control group failed')
      })
      await Promise.all([fabric.attach(attachment), assigned])
      machine.files.recordPort(port.id, 'plugged', attachment.addresses)
      return { id: port.id, addresses: attachment.addresses }
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
    // Read before the state: a machine that becomes ready in between must not look as if it had ended.
    const start = machine.files.start()
    const state = running(machine) === null ? 'stopped' : 'running'
    return { ...identityOf(amphoraId, machine), state, ...(start === undefined ? {} : { start }) }
  }

  async #create(spec: MachineSpec): Promise<CreatedMachine> {
    const machine = this.#machineOf(spec.amphoraId)
    const started = performance.now()
    if (running(machine) === null) await this.#start(spec, machine)
    else await this.#attachManagement(spec, machine)
    const holder = running(machine)
    if (holder === null)
      throw new MachineError(`The machine ended right after its start: ${machine.files.consoleTail()}`)
    const reachable = await sshdListens(holder)
    const milliseconds = Math.round(performance.now() - started)
    this.#options.log.info({ amphoraId: spec.amphoraId, reachable, milliseconds }, 'machine is running')
    return {
      ...identityOf(spec.amphoraId, machine),
      state: 'running',
      zone: spec.placement.zone ?? LOCAL_ZONE,
      image: machine.files.image(),
    }
  }

  async #start(spec: MachineSpec, machine: MachineParts): Promise<void> {
    const { agentBundle, nodeProgram = process.execPath, findImage = () => null, accounts, log } = this.#options
    const { files, namespace } = machine
    await this.#takeDown(spec.amphoraId, machine)
    files.prepare()
    files.forgetProcess()
    const keeper = await namespace.make()
    try {
      await this.#attachManagement(spec, machine)
      const { groups, inForce, lacking } = enforce(
        this.#placeOf(spec.amphoraId, spec.projectId),
        limitsOf(spec, this.#options.limits),
      )
      for (const { what, why } of lacking)
        log.warn({ amphoraId: spec.amphoraId, why }, `the machine has no ${what} limit`)
      const image = findImage(spec.placement.imageTag)
      if (image !== null) files.recordImage(image)
      const programs = image === null ? { node: nodeProgram, agent: agentBundle } : programsIn(image.root)
      await startMachine({
        directory: files,
        keeper: keeper.pid,
        imageRoot: image?.root ?? null,
        node: shareable(programs.node, EXECUTABLE),
        agentBundle: shareable(programs.agent, READABLE),
        bootData: createBootData(spec, inForce),
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
    const { managementPort } = spec
    if (managementPort === null) throw new MachineError(`Amphora ${spec.amphoraId} has no management port.`)
    const { id, networkId, macAddress, fixedIps } = managementPort
    files.recordPort(id, 'management')
    await fabric.attach({
      networkId,
      mtu: await networkMtu(networkId),
      portId: id,
      // Fixed, so that the controller's neighbour entry stays valid.
      macAddress,
      addresses: fixedIps.map(({ address }) => address),
      namespace: namespace.name,
      interfaceName: MANAGEMENT_INTERFACE,
      // A compromised amphora must not reach the others.
      isolated: true,
    })
    await namespace.configure(
      MANAGEMENT_INTERFACE,
      fixedIps.map(({ address }) => `${address}/${spec.managementPrefix}`),
    )
  }

  /** Interfaces first: this removes both ends even while a socket with unsent data keeps the namespace alive. */
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

/** The limits of a machine's flavor, and the driver's where it says nothing. */
function limitsOf(
  { placement: { memoryMiB, cores } }: MachineSpec,
  { memoryBytes, processors, processes }: Limits,
): Limits {
  return {
    memoryBytes: memoryMiB === null ? memoryBytes : memoryMiB * MIB,
    processors: cores ?? processors,
    processes,
  }
}

const programsIn = (root: string) => ({
  node: join(root, 'opt/krater/node'),
  agent: join(root, 'opt/krater/agent.mjs'),
})

const identityOf = (amphoraId: string, { namespace }: MachineParts) => ({
  amphoraId,
  driver: 'namespace',
  computeId: amphoraId,
  name: namespace.name,
})

type MachineParts = { files: ReturnType<typeof machineDirectory>; namespace: ReturnType<typeof networkNamespace> }

/** The process that holds a machine, if the machine is ready and its namespace has its name; otherwise null. */
function running({ files, namespace }: MachineParts): number | null {
  const holder = files.holder()
  return holder !== null && files.isReady() && namespace.holds(holder) ? holder : null
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
