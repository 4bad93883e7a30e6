import { join } from 'node:path'
import type { Port } from '../../network/driver.js'
import type { Fabric } from '../../network/local/fabric.js'
import {
  type ComputeDriver,
  type CreatedMachine,
  LOCAL_ZONE,
  type Machine,
  type MachineSpec,
  type PluggedPort,
} from '../driver.js'
import { createBootData } from '../host/boot-data.js'
import type { Limits } from '../host/cgroup.js'
import type { AccountRange } from '../host/holder.js'
import {
  accountHint,
  type HostMachine,
  HostMachines,
  type HostMachinesOptions,
  running,
} from '../host/host-machines.js'
import { MachineError } from '../host/machine-error.js'
import { EXECUTABLE, READABLE, shareable } from '../host/shareable.js'
import { inspectMachine } from './inspect-machine.js'
import { sshdListens, startMachine } from './machine-process.js'
import type { RootImage } from './root-image.js'

export type NamespaceDriverOptions = HostMachinesOptions & {
  fabric: Pick<Fabric, 'attach' | 'detach' | 'connectedPorts'>
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
}

const MANAGEMENT_INTERFACE = 'mgmt0'
const MIB = 1024 * 1024

/**
 * Runs amphorae in namespaces of this host: each has its own network, processes, host name and in-memory root,
 * which shares only /usr, that of an image or the host's. A machine outlives the controller.
 */
export class NamespaceDriver implements ComputeDriver {
  readonly name = 'namespace'
  readonly #options: NamespaceDriverOptions
  readonly #machines: HostMachines

  constructor(options: NamespaceDriverOptions) {
    this.#options = options
    this.#machines = new HostMachines(this.name, '', options)
  }

  create(spec: MachineSpec): Promise<CreatedMachine> {
    return this.#machines.inTurn(spec.amphoraId, () => this.#create(spec))
  }

  async find(amphoraId: string): Promise<Machine | null> {
    return this.#machines.find(amphoraId)
  }

  async list(): Promise<Machine[]> {
    return this.#machines.list()
  }

  async inspect(amphoraId: string): ReturnType<ComputeDriver['inspect']> {
    try {
      const machine = this.#machines.of(amphoraId)
      const holder = running(machine)
      return holder === null ? null : await inspectMachine(holder, machine.namespace.name)
    } catch {
      // A failed inspection, for example with too many open files, must not look like a dead machine.
      return null
    }
  }

  delete(amphoraId: string): Promise<void> {
    return this.#machines.delete(amphoraId)
  }

  plug(amphoraId: string, port: Port, projectId: string): Promise<PluggedPort> {
    // The agent finds the interface by its MAC address and renames it.
    const interfaceName = `new${port.id.replaceAll('-', '').slice(0, 11)}`
    return this.#machines.plug(amphoraId, port, projectId, (_machine, attachment) =>
      this.#options.fabric.attach({ ...attachment, interfaceName }),
    )
  }

  unplug(amphoraId: string, portId: string): Promise<void> {
    return this.#machines.unplug(amphoraId, portId)
  }

  pluggedPorts(amphoraId: string): Promise<PluggedPort[]> {
    return this.#machines.pluggedPorts(amphoraId)
  }

  brokenInterfaces(): Promise<string[]> {
    return this.#machines.brokenInterfaces()
  }

  async #create(spec: MachineSpec): Promise<CreatedMachine> {
    const machine = this.#machines.of(spec.amphoraId)
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
      ...this.#machines.identityOf(spec.amphoraId),
      state: 'running',
      zone: spec.placement.zone ?? LOCAL_ZONE,
      image: machine.files.image(),
    }
  }

  async #start(spec: MachineSpec, machine: HostMachine): Promise<void> {
    const { agentBundle, nodeProgram = process.execPath, findImage = () => null, accounts } = this.#options
    const { files, namespace } = machine
    await this.#machines.takeDown(spec.amphoraId, machine)
    files.prepare()
    files.forgetProcess()
    const keeper = await namespace.make()
    try {
      await this.#attachManagement(spec, machine)
      const { groups, inForce } = this.#machines.enforce(spec, limitsOf(spec, this.#options.limits))
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
        accountHint: accountHint(spec.amphoraId),
        groups,
      })
    } finally {
      keeper.end()
    }
  }

  async #attachManagement(spec: MachineSpec, machine: HostMachine): Promise<void> {
    const attachment = await this.#machines.managementAttachment(spec, machine)
    await this.#options.fabric.attach({ ...attachment, interfaceName: MANAGEMENT_INTERFACE })
    await machine.namespace.configure(
      MANAGEMENT_INTERFACE,
      attachment.addresses.map(address => `${address}/${spec.managementPrefix}`),
    )
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
