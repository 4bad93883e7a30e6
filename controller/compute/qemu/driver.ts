import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { seedDisk } from '../../../amphora-agent/protocol/seed.js'
import type { Logger } from '../../log/log.js'
import { addressesOf, type Port } from '../../network/driver.js'
import { type Fabric, type TapAttachment, tapOf } from '../../network/local/fabric.js'
import { ip, runTool } from '../../network/local/ip-command.js'
import { ensureNamespace, namespacesNamed } from '../../network/local/namespace.js'
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
import { assign, enforce, release } from '../host/cgroup.js'
import { type AccountRange, accountWords, endMachine, startHolder } from '../host/holder.js'
import { machineDirectory } from '../host/machine-directory.js'
import { MachineError } from '../host/machine-error.js'
import { networkNamespace } from '../host/network-namespace.js'
import { READABLE, shareable } from '../host/shareable.js'
import { sourceFolder } from '../source-folder.js'
import { type Acceleration, QEMU } from './acceleration.js'
import { commandLine, MAX_PLUGGED, overheadMiB, SEED_DEVICE, SEED_FILES } from './command-line.js'
import type { MachineImage } from './image.js'
import { inspectMachine } from './inspect-machine.js'
import { requireMemory } from './memory.js'
import {
  addInterface,
  closeTap,
  freeSlot,
  openTap,
  type Peripheral,
  peripherals,
  removeDevice,
  removeInterface,
} from './peripherals.js'
import { type Qmp, QmpRefused, QmpUnreachable, withQmp } from './qmp/client.js'
import { sshdAnswers } from './readiness.js'

export type QemuDriverOptions = {
  /** Distinguishes this installation's machines from others on the host. */
  instance: string
  /** Parent of the machines' directories. */
  directory: string
  fabric: Pick<Fabric, 'attachTap' | 'holdsTap' | 'detach' | 'connectedPorts'>
  /** MTU for interfaces on a network. */
  networkMtu: (networkId: string) => Promise<number>
  /** What a port may send and receive; null: everything. In force before the port is plugged in. */
  portFilters: (portId: string) => Promise<Filters | null>
  /** @throws ComputeUnavailable if there is none with this tag; undefined: the usual one */
  findImage: (tag: string | undefined) => MachineImage
  /** @throws ComputeUnavailable */
  acceleration: () => Promise<Acceleration>
  /** Size of machines whose flavor says nothing. */
  size: { memoryMiB: number; cores: number }
  /** MiB for all virtual machines of this host. */
  availableMemory: () => number
  accounts: AccountRange
  log: Logger
}

const AMPHORA_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const MIB = 1024 * 1024
/** Threads of one QEMU: its processors, and those that wait for disks. */
const MAX_THREADS = 192
/** QEMU's own work, besides the machine's processors: it carries each packet. */
const EXTRA_PROCESSORS = 1
/** From start to sshd. Measured: 4 s emulated on an idle host; several times that on a busy one. */
const BOOT_LIMIT_MS = { kvm: 30_000, tcg: 90_000 }
const nothing = z.unknown()

/** What the kernel is told besides what its image says. An emulated processor leaks nothing, and its other clocks are slow. */
const kernelOptions = (ofImage: string, acceleration: Acceleration['kind']): string =>
  ['console=ttyS0', ofImage, ...(acceleration === 'tcg' ? ['mitigations=off tsc=reliable'] : [])].join(' ')

/**
 * Runs amphorae in virtual machines of this host. Each has a QEMU without any right, in namespaces of its own. A machine
 * outlives the controller. Each start is one from the image, with a fresh seed. Calls for the same amphora run one after
 * another.
 */
export class QemuDriver implements ComputeDriver {
  readonly name = 'qemu'
  readonly #options: QemuDriverOptions
  readonly #controlGroup: string
  readonly #prefix: string
  readonly #inTurn = createQueues()

  constructor(options: QemuDriverOptions) {
    this.#options = options
    this.#controlGroup = `krater-${options.instance}`
    this.#prefix = `krater-${options.instance}-vm-`
  }

  create(spec: MachineSpec): Promise<CreatedMachine> {
    return this.#inTurn(spec.amphoraId, () => this.#create(spec))
  }

  async find(amphoraId: string): Promise<Machine | null> {
    return this.#describe(amphoraId)
  }

  async list(): Promise<Machine[]> {
    const named = namespacesNamed(this.#prefix).map(name => name.slice(this.#prefix.length))
    const known = new Set([...this.#recorded(), ...named.filter(name => AMPHORA_ID.test(name))])
    return [...known].flatMap(name => this.#describe(name) ?? [])
  }

  async inspect(amphoraId: string): ReturnType<ComputeDriver['inspect']> {
    const machine = this.#machineOf(amphoraId)
    const holder = running(machine)
    return holder === null ? null : inspectMachine(holder, machine.files.monitor)
  }

  async console(amphoraId: string): Promise<string | null> {
    return this.#machineOf(amphoraId).files.consoleText()
  }

  delete(amphoraId: string): Promise<void> {
    return this.#inTurn(amphoraId, async () => {
      const machine = this.#machineOf(amphoraId)
      await this.#takeDown(amphoraId, machine)
      machine.files.remove()
    })
  }

  plug(amphoraId: string, port: Port, projectId: string): Promise<PluggedPort> {
    const { networkMtu, portFilters, log } = this.#options
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
      }
      // A new interface is recorded first: it counts as connected only once its addresses are allowed. For an existing
      // one, new addresses are recorded only after they are allowed.
      if (!machine.files.recordedPorts('plugged').includes(port.id)) {
        machine.files.recordPort(port.id, 'plugged', attachment.addresses)
      }
      const assigned = assign(this.#placeOf(amphoraId, projectId)).catch((error: unknown) => {
        log.warn({ amphoraId, err: error }, 'moving the machine to its project’s control group failed')
      })
      await Promise.all([withQmp(machine.files.monitor, qmp => this.#connect(qmp, machine, attachment)), assigned])
      machine.files.recordPort(port.id, 'plugged', attachment.addresses)
      return { id: port.id, addresses: attachment.addresses }
    })
  }

  unplug(amphoraId: string, portId: string): Promise<void> {
    return this.#inTurn(amphoraId, async () => {
      const machine = this.#machineOf(amphoraId)
      const { files } = machine
      if (!files.recordedPorts('plugged').includes(portId)) return
      // At once, whatever the machine does.
      await this.#options.fabric.detach(portId)
      if (running(machine) !== null)
        await withQmp(files.monitor, qmp => this.#disconnect(qmp, amphoraId, tapOf(portId)))
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
    return this.#recorded().filter(amphoraId => {
      const machine = this.#machineOf(amphoraId)
      const recorded = machine.files.recordedPorts('plugged')
      return recorded.some(portId => !standing.has(portId)) && running(machine) !== null
    })
  }

  /** Ids of the amphorae that have a directory. */
  #recorded(): string[] {
    return namesIn(this.#options.directory).filter(name => AMPHORA_ID.test(name))
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
    const { log } = this.#options
    const { amphoraId } = spec
    const machine = this.#machineOf(amphoraId)
    const { files } = machine
    const started = performance.now()
    if (running(machine) === null) await this.#start(spec, machine)
    else await withQmp(files.monitor, async qmp => this.#connect(qmp, machine, await this.#managementOf(spec, machine)))
    const hardware = files.hardware()
    if (hardware === null) throw new MachineError(`${files.path} does not say what the machine has.`)
    const [first] = managementPortOf(spec).fixedIps
    const hasEnded = () => running(machine) === null
    const limit = BOOT_LIMIT_MS[hardware.acceleration]
    const reachable = first !== undefined && (await sshdAnswers(first.address, limit, hasEnded))
    if (hasEnded()) throw new MachineError(`The machine ended right after its start: ${files.consoleTail()}`)
    if (reachable) await withQmp(files.monitor, removeSeed)
    const milliseconds = Math.round(performance.now() - started)
    const { acceleration, image } = hardware
    const fields = { amphoraId, acceleration, reachable, milliseconds }
    if (reachable) log.info(fields, 'virtual machine is running')
    else log.warn({ ...fields, console: files.consoleTail() }, 'a virtual machine does not answer yet')
    return {
      ...identityOf(amphoraId, machine),
      state: 'running',
      zone: spec.placement.zone ?? LOCAL_ZONE,
      image,
    }
  }

  async #start(spec: MachineSpec, machine: MachineParts): Promise<void> {
    const { findImage, acceleration, size } = this.#options
    const { amphoraId, placement } = spec
    const { files, namespace } = machine
    await this.#takeDown(amphoraId, machine)
    const image = findImage(placement.imageTag ?? undefined)
    const { kind } = await acceleration()
    const memoryMiB = placement.memoryMiB ?? size.memoryMiB
    const cores = Math.ceil(placement.cores ?? size.cores)
    files.prepare()
    files.forgetProcess()
    const hardware = {
      memoryMiB: memoryMiB + overheadMiB(kind),
      acceleration: kind,
      image: { tag: image.tag, id: image.id },
    }
    files.recordHardware(hardware)
    try {
      requireMemory(this.#promisedMemory(), this.#options.availableMemory())
      await ensureNamespace(namespace.name)
      await runTool(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', image.disk, '-F', 'qcow2', files.disk], '')
      const groups = this.#enforce(spec, hardware.memoryMiB, cores)
      const words = [
        ...[
          files.path,
          namespace.file,
          ...accountWords(this.#options.accounts, Number.parseInt(amphoraId.slice(0, 8), 16)),
        ],
        ...[shareable(image.kernel, READABLE), shareable(image.initrd, READABLE), image.disk],
        ...[...groups, '--', QEMU],
        ...commandLine({
          name: namespace.name,
          acceleration: kind,
          memoryMiB,
          cores,
          kernelOptions: kernelOptions(image.kernelOptions, kind),
        }),
      ]
      const script = join(sourceFolder('controller/compute/qemu/machine'), 'start.sh')
      await startHolder(files, [script, ...words], { seed: seedOf(spec) })
      await withQmp(files.monitor, async qmp => {
        await this.#connect(qmp, machine, await this.#managementOf(spec, machine))
        await qmp.execute('cont', { answer: nothing })
      })
      files.markReady()
    } catch (error) {
      const console = files.consoleTail()
      await this.#takeDown(amphoraId, machine).catch((failure: unknown) => {
        this.#options.log.warn({ amphoraId, err: failure }, 'removing what a failed start left behind failed')
      })
      files.forgetHardware()
      if (error instanceof QmpUnreachable) throw new MachineError(`QEMU did not start: ${console || error.message}`)
      throw error
    }
  }

  /** MiB of each virtual machine of this host that runs or is about to. */
  #promisedMemory(): number[] {
    return this.#recorded().flatMap(amphoraId => this.#machineOf(amphoraId).files.hardware()?.memoryMiB ?? [])
  }

  #enforce(spec: MachineSpec, memoryMiB: number, cores: number): string[] {
    const limits = { memoryBytes: memoryMiB * MIB, processors: cores + EXTRA_PROCESSORS, processes: MAX_THREADS }
    const { groups, lacking } = enforce(this.#placeOf(spec.amphoraId, spec.projectId), limits)
    for (const { what, why } of lacking)
      this.#options.log.warn({ amphoraId: spec.amphoraId, why }, `the machine has no ${what} limit`)
    return groups
  }

  async #managementOf(spec: MachineSpec, { files, namespace }: MachineParts): Promise<TapAttachment> {
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

  /** Gives the machine an interface, or lets the one that it has send from all addresses. */
  async #connect(qmp: Qmp, { files, namespace }: MachineParts, attachment: TapAttachment): Promise<void> {
    const { fabric } = this.#options
    const { portId, macAddress, mtu } = attachment
    const tap = tapOf(portId)
    const present = await peripherals(qmp)
    const own = present.find(one => one.tap === tap)
    if (own !== undefined && (await fabric.holdsTap(portId))) return fabric.attachTap(attachment)
    const slot = freeSlot(await this.#removeStale(qmp, files, present, tap))
    if (slot === null)
      throw new MachineError(
        `A virtual machine has at most ${MAX_PLUGGED} network interfaces besides the management interface.`,
      )
    await fabric.detach(portId)
    await closeTap(qmp, tap)
    await ip(['-n', namespace.name, 'link', 'delete', 'dev', tap]).catch(() => undefined)
    const account = String(files.account())
    await ip(['-n', namespace.name, 'tuntap', 'add', 'dev', tap, 'mode', 'tap', 'user', account])
    await openTap(qmp, tap)
    await fabric.attachTap(attachment)
    await addInterface(qmp, { slot, tap, macAddress, mtu })
  }

  /**
   * Removes an interface that has lost its tap device, and those that the machine held on to when they were unplugged.
   * @returns those that remain
   */
  async #removeStale(
    qmp: Qmp,
    files: MachineParts['files'],
    present: readonly Peripheral[],
    tap: string,
  ): Promise<Peripheral[]> {
    const recorded = new Set(files.recordedPorts().map(tapOf))
    const remaining: Peripheral[] = []
    for (const one of present) {
      const isStale = one.tap === tap || !recorded.has(one.tap)
      if (!isStale || !(await removeInterface(qmp, one))) remaining.push(one)
    }
    if (remaining.some(one => one.tap === tap))
      throw new MachineError('A virtual machine does not let go of a network interface that has failed.')
    return remaining
  }

  async #disconnect(qmp: Qmp, amphoraId: string, tap: string): Promise<void> {
    const own = (await peripherals(qmp)).find(one => one.tap === tap)
    const isReleased = own === undefined || (await removeInterface(qmp, own))
    if (!isReleased)
      this.#options.log.warn({ amphoraId, tap }, 'the machine does not let go of an unplugged interface yet')
    await closeTap(qmp, tap)
  }

  /** Interfaces first, so that nothing that still runs is heard. */
  async #takeDown(amphoraId: string, { files, namespace }: MachineParts): Promise<void> {
    for (const portId of files.recordedPorts()) {
      await this.#options.fabric.detach(portId)
      files.forgetPort(portId)
    }
    await endMachine(files)
    await release({ instance: this.#controlGroup, machine: amphoraId })
    await namespace.remove()
    for (const file of [files.disk, files.monitor]) rmSync(file, { force: true })
  }
}

/** The machine has the seed on its own disk now, or in memory. QEMU forgets it too. */
async function removeSeed(qmp: Qmp): Promise<void> {
  if (!(await removeDevice(qmp, SEED_DEVICE))) return
  for (const [command, words] of [
    ['blockdev-del', { 'node-name': SEED_DEVICE }],
    ['remove-fd', SEED_FILES],
  ] as const) {
    await qmp.execute(command, { arguments: words, answer: nothing }).catch((error: unknown) => {
      // It was removed before.
      if (!(error instanceof QmpRefused)) throw error
    })
  }
}

function seedOf(spec: MachineSpec): Uint8Array {
  return seedDisk({
    ...createBootData(spec, {}),
    'management-mac': `${managementPortOf(spec).macAddress.toLowerCase()}\n`,
    'management-prefix': `${spec.managementPrefix}\n`,
  })
}

function managementPortOf({ amphoraId, managementPort }: MachineSpec): Port {
  if (managementPort === null) throw new MachineError(`Amphora ${amphoraId} has no management port.`)
  return managementPort
}

const identityOf = (amphoraId: string, { namespace }: MachineParts) => ({
  amphoraId,
  driver: 'qemu',
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
