import { type Finding, fault, note, ok } from '../../checks/finding.js'
import { chooseAcceleration } from './acceleration.js'
import { overheadMiB } from './command-line.js'
import { hostMemory, memoryForMachines } from './memory.js'

const ABOUT = 'virtual machines'

type Settings = { machine_memory: number; machines_memory: number; acceleration: 'auto' | 'kvm' | 'tcg' }

/** How this host runs virtual machines, and how many of the usual size. */
export async function checkHost(settings: Settings): Promise<Finding[]> {
  if (process.arch !== 'x64') {
    return [
      fault(ABOUT, `the driver qemu needs an x86-64 host, and this is ${process.arch}`, 'use the driver namespace'),
    ]
  }
  try {
    const acceleration = await chooseAcceleration(settings.acceleration)
    const how = acceleration.kind === 'kvm' ? ok(ABOUT, 'they run with KVM') : note(ABOUT, emulated(acceleration.why))
    return [how, checkMemory(settings, { host: hostMemory(), overhead: overheadMiB(acceleration.kind) })]
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error)
    return [fault(ABOUT, text, 'set compute.acceleration to auto, or enable KVM on this host')]
  }
}

const emulated = (why: string): string =>
  `they are emulated, and carry a ninth to a fifth of the requests of namespaces: ${why}`

/** How many machines of the usual size have room. Pure. @param overhead MiB that QEMU takes for each */
export function checkMemory(
  { machine_memory, machines_memory }: Pick<Settings, 'machine_memory' | 'machines_memory'>,
  { host, overhead }: { host: number; overhead: number },
): Finding {
  const available = memoryForMachines(machines_memory, host)
  const each = machine_memory + overhead
  const room = Math.floor(available / each)
  const text = `there is room for ${room} of ${machine_memory} MiB (each takes ${each} of ${available} MiB for all)`
  if (available > host) {
    const remedy = 'lower compute.machines_memory'
    return fault(ABOUT, `compute.machines_memory is ${available} MiB, and this host has ${host}`, remedy)
  }
  return room > 0
    ? ok(ABOUT, text)
    : fault(ABOUT, text, 'lower compute.machine_memory, or raise compute.machines_memory')
}
