import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Logger } from '../../log/log.js'
import { addressesOf, type Port } from '../../network/driver.js'
import type { Fabric, TapAttachment } from '../../network/local/fabric.js'
import { namespacesNamed } from '../../network/local/namespace.js'
import type { Filters } from '../../network/local/security-groups/filters.js'
import { createQueues } from '../../process/in-turn.js'
import type { Machine, MachineSpec, PluggedPort } from '../driver.js'
import { assign, enforce, type Limits, release } from './cgroup.js'
import { endMachine } from './holder.js'
import { type MachineDirectory, machineDirectory } from './machine-directory.js'
import { MachineError } from './machine-error.js'
import { networkNamespace } from './network-namespace.js'

/** What a driver with machines of this host needs, whatever their kind. */
export type HostMachinesOptions = {
  /** Distinguishes this installation's machines from others on the host. */
  instance: string
  /** Parent of the machines' directories. */
  directory: string
  fabric: Pick<Fabric, 'detach' | 'connectedPorts'>
  /** MTU for interfaces on a network. */
  networkMtu: (networkId: string) => Promise<number>
  /** What a port may send and receive; null: everything. In force before the port is plugged in. */
  portFilters: (portId: string) => Promise<Filters | null>
  log: Logger
}

/** Where a machine is on the host. */
export type HostMachine = { files: MachineDirectory; namespace: ReturnType<typeof networkNamespace> }

const AMPHORA_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/**
 * The machines of one driver on this host: their directories, namespaces, control groups and ports. Each has a directory
 * and a network namespace that are named after its amphora. Calls for the same amphora run one after another.
 */
export class HostMachines {
  readonly #driver: string
  readonly #options: HostMachinesOptions
  readonly #controlGroup: string
  readonly #prefix: string
  readonly inTurn = createQueues()

  /** @param prefix what the names of its namespaces begin with, after the instance */
  constructor(driver: string, prefix: string, options: HostMachinesOptions) {
    this.#driver = driver
    this.#options = options
    this.#controlGroup = `krater-${options.instance}`
    this.#prefix = `krater-${options.instance}-${prefix}`
  }

  /** @throws MachineError unless it is an amphora's id, which becomes part of paths and names */
  of(amphoraId: string): HostMachine {
    if (!AMPHORA_ID.test(amphoraId)) throw new MachineError(`Not an amphora id: ${JSON.stringify(amphoraId)}`)
    return {
      files: machineDirectory(join(this.#options.directory, amphoraId)),
      namespace: networkNamespace(`${this.#prefix}${amphoraId}`),
    }
  }

  /** Ids of the amphorae that have a directory. */
  recorded(): string[] {
    return namesIn(this.#options.directory).filter(name => AMPHORA_ID.test(name))
  }

  list(): Machine[] {
    const named = namespacesNamed(this.#prefix).map(name => name.slice(this.#prefix.length))
    const known = new Set([...this.recorded(), ...named.filter(name => AMPHORA_ID.test(name))])
    return [...known].flatMap(name => this.find(name) ?? [])
  }

  find(amphoraId: string): Machine | null {
    const machine = this.of(amphoraId)
    if (!machine.files.exists() && !machine.namespace.exists()) return null
    // Read before the state: a machine that becomes ready in between must not look as if it had ended.
    const start = machine.files.start()
    const state = running(machine) === null ? 'stopped' : 'running'
    return { ...this.identityOf(amphoraId), state, ...(start === undefined ? {} : { start }) }
  }

  identityOf(amphoraId: string): Omit<Machine, 'state'> {
    return { amphoraId, driver: this.#driver, computeId: amphoraId, name: this.of(amphoraId).namespace.name }
  }

  delete(amphoraId: string): Promise<void> {
    return this.inTurn(amphoraId, async () => {
      const machine = this.of(amphoraId)
      await this.takeDown(amphoraId, machine)
      machine.files.remove()
    })
  }

  /**
   * Plugs a port into a running machine, and assigns the machine to the project.
   * @param connect gives the machine the interface
   */
  plug(
    amphoraId: string,
    port: Port,
    projectId: string,
    connect: (machine: HostMachine, attachment: TapAttachment) => Promise<void>,
  ): Promise<PluggedPort> {
    const { networkMtu, portFilters, log } = this.#options
    return this.inTurn(amphoraId, async () => {
      const machine = this.of(amphoraId)
      if (running(machine) === null) throw new MachineError(`The machine of amphora ${amphoraId} is not running.`)
      const attachment = {
        networkId: port.networkId,
        mtu: await networkMtu(port.networkId),
        portId: port.id,
        macAddress: port.macAddress,
        addresses: addressesOf(port),
        filters: await portFilters(port.id),
        namespace: machine.namespace.name,
      }
      // A new interface is recorded first: it counts as connected only once its addresses are allowed. For an existing
      // one, new addresses are recorded only after they are allowed.
      if (!machine.files.recordedPorts('plugged').includes(port.id)) {
        machine.files.recordPort(port.id, 'plugged', attachment.addresses)
      }
      const assigned = assign(this.#placeOf(amphoraId, projectId)).catch((error: unknown) => {
        log.warn({ amphoraId, err: error }, 'moving the machine to its project’s control group failed')
      })
      await Promise.all([connect(machine, attachment), assigned])
      machine.files.recordPort(port.id, 'plugged', attachment.addresses)
      return { id: port.id, addresses: attachment.addresses }
    })
  }

  /** @param disconnect takes the interface from the machine, once nothing passes it any more */
  unplug(
    amphoraId: string,
    portId: string,
    disconnect: (machine: HostMachine) => Promise<void> = async () => undefined,
  ): Promise<void> {
    return this.inTurn(amphoraId, async () => {
      const machine = this.of(amphoraId)
      if (!machine.files.recordedPorts('plugged').includes(portId)) return
      await this.#options.fabric.detach(portId)
      await disconnect(machine)
      machine.files.forgetPort(portId)
    })
  }

  async pluggedPorts(amphoraId: string): Promise<PluggedPort[]> {
    const machine = this.of(amphoraId)
    const recorded = running(machine) === null ? [] : machine.files.recordedPorts('plugged')
    if (recorded.length === 0) return []
    const standing = new Set(await this.#options.fabric.connectedPorts())
    return recorded
      .filter(portId => standing.has(portId))
      .map(id => ({ id, addresses: machine.files.recordedAddresses(id) }))
  }

  async brokenInterfaces(): Promise<string[]> {
    const standing = new Set(await this.#options.fabric.connectedPorts())
    return this.recorded().filter(amphoraId => {
      const machine = this.of(amphoraId)
      const recorded = machine.files.recordedPorts('plugged')
      return recorded.some(portId => !standing.has(portId)) && running(machine) !== null
    })
  }

  /** How the management port comes onto the fabric; it is recorded first. */
  async managementAttachment(spec: MachineSpec, { files, namespace }: HostMachine): Promise<TapAttachment> {
    const { id, networkId, macAddress, fixedIps } = managementPortOf(spec)
    files.recordPort(id, 'management')
    return {
      networkId,
      mtu: await this.#options.networkMtu(networkId),
      portId: id,
      // Fixed, so that the controller's neighbour entry stays valid.
      macAddress,
      addresses: fixedIps.map(({ address }) => address),
      namespace: namespace.name,
      // A compromised amphora must not reach the others.
      isolated: true,
    }
  }

  /** Makes a machine's control groups with its limits; what the host lacks for them is logged. */
  enforce({ amphoraId, projectId }: MachineSpec, limits: Limits) {
    const { groups, inForce, lacking } = enforce(this.#placeOf(amphoraId, projectId), limits)
    for (const { what, why } of lacking) this.#options.log.warn({ amphoraId, why }, `the machine has no ${what} limit`)
    return { groups, inForce }
  }

  /** Interfaces first: this removes both ends even while a socket with unsent data keeps the namespace alive. */
  async takeDown(amphoraId: string, { files, namespace }: HostMachine): Promise<void> {
    for (const portId of files.recordedPorts()) {
      await this.#options.fabric.detach(portId)
      files.forgetPort(portId)
    }
    await endMachine(files)
    await release({ instance: this.#controlGroup, machine: amphoraId })
    await namespace.remove()
    for (const file of [files.disk, `${files.disk}.new`, files.monitor, files.evidence]) rmSync(file, { force: true })
  }

  #placeOf(machine: string, project: string | null) {
    return { instance: this.#controlGroup, project, machine }
  }
}

/** The process that holds a machine, if the machine is ready and its namespace has its name; otherwise null. */
export function running({ files, namespace }: HostMachine): number | null {
  const holder = files.holder()
  return holder !== null && files.isReady() && namespace.holds(holder) ? holder : null
}

/** @throws MachineError if it has none */
export function managementPortOf({ amphoraId, managementPort }: MachineSpec): Port {
  if (managementPort === null) throw new MachineError(`Amphora ${amphoraId} has no management port.`)
  return managementPort
}

/** Where a search for free accounts begins: machines spread over the range. */
export const accountHint = (amphoraId: string): number => Number.parseInt(amphoraId.slice(0, 8), 16)

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
