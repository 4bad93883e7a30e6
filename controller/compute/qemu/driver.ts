import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { seedDisk } from '../../../amphora-agent/protocol/seed.js'
import type { Port } from '../../network/driver.js'
import { type Fabric, type TapAttachment, tapOf } from '../../network/local/fabric.js'
import { ip } from '../../network/local/ip-command.js'
import { ensureNamespace } from '../../network/local/namespace.js'
import {
  type ComputeDriver,
  type CreatedMachine,
  LOCAL_ZONE,
  type Machine,
  type MachineSpec,
  type PluggedPort,
} from '../driver.js'
import { createBootData } from '../host/boot-data.js'
import { type AccountRange, accountWords, startHolder } from '../host/holder.js'
import {
  accountHint,
  type HostMachine,
  HostMachines,
  type HostMachinesOptions,
  managementPortOf,
  running,
} from '../host/host-machines.js'
import type { Hardware } from '../host/machine-directory.js'
import { MachineError } from '../host/machine-error.js'
import { READABLE, shareable } from '../host/shareable.js'
import { unlessGone } from '../host/unless-gone.js'
import { sourceFolder } from '../source-folder.js'
import { type Acceleration, QEMU } from './acceleration.js'
import { commandLine, MAX_PLUGGED, overheadMiB } from './command-line.js'
import { createDisk, freeBytes, mayGrowBy, requireRoom } from './disk-room.js'
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
  removeInterface,
  removeSeed,
} from './peripherals.js'
import { type Qmp, QmpUnreachable, withQmp } from './qmp/client.js'
import { sshdAnswers } from './readiness.js'

export type QemuDriverOptions = HostMachinesOptions & {
  fabric: Pick<Fabric, 'attachTap' | 'holdsTap' | 'detach' | 'connectedPorts'>
  /** @throws ComputeUnavailable if there is none with this tag; undefined: the usual one */
  findImage: (tag: string | undefined) => MachineImage
  /** @throws ComputeUnavailable */
  acceleration: () => Promise<Acceleration>
  /** Size of machines whose flavor says nothing. */
  size: { memoryMiB: number; cores: number }
  /** MiB for all virtual machines of this host. */
  availableMemory: () => number
  accounts: AccountRange
}

const MIB = 1024 * 1024
/** Threads of one QEMU besides its processors: those that wait for disks. */
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
 * outlives the controller. Each start is one from the image, with a fresh seed.
 */
export class QemuDriver implements ComputeDriver {
  readonly name = 'qemu'
  readonly #options: QemuDriverOptions
  readonly #machines: HostMachines

  constructor(options: QemuDriverOptions) {
    this.#options = options
    this.#machines = new HostMachines(this.name, 'vm-', options)
  }

  create(spec: MachineSpec): Promise<CreatedMachine> {
    return this.#machines.inTurn(spec.amphoraId, () => this.#create(spec))
  }

  async find(amphoraId: string): Promise<Machine | null> {
    const found = this.#machines.find(amphoraId)
    const hardware = found?.state === 'running' ? this.#machines.of(amphoraId).files.hardware() : null
    return found === null || hardware === null ? found : { ...found, notes: hardwareNotes(hardware) }
  }

  async list(): Promise<Machine[]> {
    return this.#machines.list()
  }

  async inspect(amphoraId: string): ReturnType<ComputeDriver['inspect']> {
    const machine = this.#machines.of(amphoraId)
    const holder = running(machine)
    return holder === null ? null : inspectMachine(holder, machine.files)
  }

  async console(amphoraId: string): Promise<string | null> {
    return this.#machines.of(amphoraId).files.consoleText()
  }

  delete(amphoraId: string): Promise<void> {
    const console = this.#machines.of(amphoraId).files.consoleTail()
    if (console !== '') this.#options.log.info({ amphoraId, console }, 'a virtual machine is deleted')
    return this.#machines.delete(amphoraId)
  }

  plug(amphoraId: string, port: Port, projectId: string): Promise<PluggedPort> {
    return this.#machines.plug(amphoraId, port, projectId, (machine, attachment) =>
      withQmp(machine.files.monitor, async qmp => {
        // The agent has answered. A machine that took long to start may still have its seed.
        await this.#takeSeed(qmp, amphoraId)
        await this.#connect(qmp, machine, attachment)
      }),
    )
  }

  unplug(amphoraId: string, portId: string): Promise<void> {
    return this.#machines.unplug(amphoraId, portId, async machine => {
      if (running(machine) === null) return
      await withQmp(machine.files.monitor, qmp => this.#disconnect(qmp, amphoraId, tapOf(portId)))
    })
  }

  pluggedPorts(amphoraId: string): Promise<PluggedPort[]> {
    return this.#machines.pluggedPorts(amphoraId)
  }

  brokenInterfaces(): Promise<string[]> {
    return this.#machines.brokenInterfaces()
  }

  async #create(spec: MachineSpec): Promise<CreatedMachine> {
    const { log } = this.#options
    const { amphoraId } = spec
    const machine = this.#machines.of(amphoraId)
    const { files } = machine
    const started = performance.now()
    if (running(machine) === null) await this.#start(spec, machine)
    else
      await withQmp(files.monitor, async qmp =>
        this.#connect(qmp, machine, await this.#machines.managementAttachment(spec, machine)),
      )
    const hardware = files.hardware()
    if (hardware === null) throw new MachineError(`${files.path} does not say what the machine has.`)
    const [first] = managementPortOf(spec).fixedIps
    const hasEnded = () => running(machine) === null
    const limit = BOOT_LIMIT_MS[hardware.acceleration]
    const reachable = first !== undefined && (await sshdAnswers(first.address, limit, hasEnded))
    if (hasEnded()) throw new MachineError(`The machine ended right after its start: ${files.consoleTail()}`)
    if (reachable) await withQmp(files.monitor, qmp => this.#takeSeed(qmp, amphoraId))
    const milliseconds = Math.round(performance.now() - started)
    const { acceleration, image } = hardware
    const fields = { amphoraId, acceleration, reachable, milliseconds }
    if (reachable) log.info(fields, 'virtual machine is running')
    else log.warn({ ...fields, console: files.consoleTail() }, 'a virtual machine does not answer yet')
    return {
      ...this.#machines.identityOf(amphoraId),
      state: 'running',
      zone: spec.placement.zone ?? LOCAL_ZONE,
      image,
    }
  }

  async #start(spec: MachineSpec, machine: HostMachine): Promise<void> {
    const { findImage, acceleration, size } = this.#options
    const { amphoraId, placement } = spec
    const { files, namespace } = machine
    await this.#machines.takeDown(amphoraId, machine)
    const image = findImage(placement.imageTag ?? undefined)
    const { kind } = await acceleration()
    const memoryMiB = placement.memoryMiB ?? size.memoryMiB
    const cores = placement.cores ?? size.cores
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
      const diskBytes = await createDisk(files.disk, image.disk)
      files.recordHardware({ ...hardware, diskBytes })
      requireRoom(this.#growthOfDisks(diskBytes), freeBytes(files.path))
      const groups = this.#groupsFor(spec, hardware.memoryMiB, cores)
      const words = [
        ...[files.path, namespace.file, ...accountWords(this.#options.accounts, accountHint(amphoraId))],
        ...[shareable(image.kernel, READABLE), shareable(image.initrd, READABLE), image.disk],
        ...[String(Math.ceil(diskBytes / 1024)), ...groups, '--', QEMU],
        ...commandLine({
          name: namespace.name,
          acceleration: kind,
          memoryMiB,
          // Its control group limits it to a part of the last one.
          cores: Math.ceil(cores),
          kernelOptions: kernelOptions(image.kernelOptions, kind),
        }),
      ]
      const script = join(sourceFolder('controller/compute/qemu/machine'), 'start.sh')
      await startHolder(files, [script, ...words], { seed: seedOf(spec) })
      await withQmp(files.monitor, async qmp => {
        await this.#connect(qmp, machine, await this.#machines.managementAttachment(spec, machine))
        await qmp.execute('cont', { answer: nothing })
      })
      files.markReady()
    } catch (error) {
      const console = files.consoleTail()
      await this.#machines.takeDown(amphoraId, machine).catch((failure: unknown) => {
        this.#options.log.warn({ amphoraId, err: failure }, 'removing what a failed start left behind failed')
      })
      files.forgetHardware()
      if (error instanceof QmpUnreachable) throw new MachineError(`QEMU did not start: ${console || error.message}`)
      throw error
    }
  }

  async #takeSeed(qmp: Qmp, amphoraId: string): Promise<void> {
    if ((await removeSeed(qmp)) === 'emptied')
      this.#options.log.warn({ amphoraId }, 'the machine does not let go of its seed disk yet; the disk is empty now')
  }

  /** MiB of each virtual machine of this host that runs or is about to. */
  #promisedMemory(): number[] {
    return this.#machines
      .recorded()
      .flatMap(amphoraId => this.#machines.of(amphoraId).files.hardware()?.memoryMiB ?? [])
  }

  /**
   * Bytes by which the disk of each virtual machine of this host may still grow.
   * @param usual limit of one that is being created, or that a former version has created
   */
  #growthOfDisks(usual: number): number[] {
    return this.#machines
      .recorded()
      .map(amphoraId => this.#machines.of(amphoraId).files)
      .map(files => mayGrowBy(files.disk, files.hardware()?.diskBytes ?? usual))
      .filter(bytes => bytes > 0)
  }

  #groupsFor(spec: MachineSpec, memoryMiB: number, cores: number): string[] {
    const limits = {
      memoryBytes: memoryMiB * MIB,
      processors: cores + EXTRA_PROCESSORS,
      processes: MAX_THREADS + Math.ceil(cores),
    }
    return this.#machines.enforce(spec, limits).groups
  }

  /** Gives the machine an interface, or lets the one that it has send from all addresses. */
  async #connect(qmp: Qmp, { files, namespace }: HostMachine, attachment: TapAttachment): Promise<void> {
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
    await addInterface(qmp, { slot, tap, macAddress, mtu })
    // Last: a port on its bridge counts as plugged.
    await fabric.attachTap(attachment)
  }

  /**
   * Removes an interface that has lost its tap device, and those that the machine held on to when they were unplugged.
   * @returns those that remain
   */
  async #removeStale(
    qmp: Qmp,
    files: HostMachine['files'],
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
}

const hardwareNotes = ({ acceleration, memoryMiB }: Hardware): string[] => [
  acceleration === 'kvm' ? 'KVM' : 'emulated',
  `${memoryMiB} MiB with its QEMU`,
]

function seedOf(spec: MachineSpec): Uint8Array {
  return seedDisk({
    ...createBootData(spec, {}),
    'management-mac': `${managementPortOf(spec).macAddress.toLowerCase()}\n`,
    'management-prefix': `${spec.managementPrefix}\n`,
    // The agent asks them over the tenants' networks where to ask about certificates.
    'name-servers': nameServers(unlessGone(() => readFileSync('/etc/resolv.conf', 'utf8'), '')),
  })
}

/** The lines of resolv.conf that name a server. Pure. */
const nameServers = (text: string): string =>
  text
    .split('\n')
    .filter(line => line.startsWith('nameserver '))
    .map(line => `${line}\n`)
    .join('')
