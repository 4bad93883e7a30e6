import type { Acceleration } from './acceleration.js'

/** Interfaces of an amphora besides the management interface. */
export const MAX_PLUGGED = 8
/** Slots for devices that come and go: the management interface, the others, and the seed disk. */
export const SLOTS = MAX_PLUGGED + 2
export const SEED_SLOT = SLOTS - 1
/** Slots of interfaces; the management interface takes the first. */
export const INTERFACE_SLOTS = SLOTS - 1

export const SEED_DEVICE = 'seed'
const SEED_FDSET = 3

/** Files that start.sh opens for QEMU, by number: it can open no others but devices and its own programs. */
export const DESCRIPTORS = { monitor: 10, overlay: 11, base: 12, seed: 13, evidence: 14 } as const

/** Paths of the kernel in QEMU's root; see furnish.sh. */
export const KERNEL_FILES = { kernel: '/kernel', initrd: '/initrd' } as const

export type MachineShape = {
  /** Shown by the host's tools, such as ps. */
  name: string
  acceleration: Acceleration['kind']
  memoryMiB: number
  cores: number
  /** The kernel's command line. */
  kernelOptions: string
}

/**
 * Cache of translated code. QEMU's default grows with the machine's memory. With half as much, the start of a machine
 * fills it nine times, and takes longer by more than a second.
 */
const TRANSLATION_CACHE_MIB = 128

/** What QEMU itself may need besides the machine's memory. An estimate: an emulated one of 256 MiB was seen to have 387. */
export const overheadMiB = (acceleration: Acceleration['kind']): number => (acceleration === 'kvm' ? 128 : 256)

/**
 * QEMU's arguments for an amphora. It starts paused, with no network interface: these are added through the monitor,
 * always by the same way. Pure.
 */
export function commandLine({ name, acceleration, memoryMiB, cores, kernelOptions }: MachineShape): string[] {
  return [
    ...['-name', name],
    ...['-machine', 'q35,usb=off,sata=off,smbus=off,vmport=off'],
    ...accelerationOptions(acceleration),
    ...['-smp', String(cores), '-m', String(memoryMiB)],
    // Neither the host's configuration files nor devices that nobody asked for.
    ...['-no-user-config', '-nodefaults', '-display', 'none'],
    ...['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    ...['-kernel', KERNEL_FILES.kernel, '-initrd', KERNEL_FILES.initrd, '-append', kernelOptions],
    ...['-chardev', 'stdio,id=console,signal=off', '-serial', 'chardev:console'],
    // The machine's second serial line, on which it says what it carries; see evidence.sh.
    ...['-chardev', `socket,id=evidence,fd=${DESCRIPTORS.evidence},server=on,wait=off`, '-serial', 'chardev:evidence'],
    ...['-chardev', `socket,id=monitor,fd=${DESCRIPTORS.monitor},server=on,wait=off`],
    ...['-mon', 'chardev=monitor,mode=control'],
    ...diskOptions(),
    ...slotOptions(),
    ...seedOptions(),
    ...['-device', 'virtio-rng-pci,addr=0x3'],
    '-S',
  ]
}

function accelerationOptions(acceleration: Acceleration['kind']): string[] {
  if (acceleration === 'kvm') return ['-accel', 'kvm', '-cpu', 'host']
  // Without AVX, for which the emulation has no fast code, and with a source of random numbers.
  return ['-accel', `tcg,thread=multi,tb-size=${TRANSLATION_CACHE_MIB}`, '-cpu', 'Nehalem,+rdrand']
}

/** The image, which no machine writes, below the machine's own changes. These are gone after the next start, so nobody waits for the disk. */
function diskOptions(): string[] {
  const fdset = (set: number, descriptor: number) => ['-add-fd', `fd=${descriptor},set=${set}`]
  const file = 'driver=file,locking=off'
  return [
    ...fdset(1, DESCRIPTORS.overlay),
    ...fdset(2, DESCRIPTORS.base),
    ...['-blockdev', `${file},node-name=base-file,filename=/dev/fdset/2,read-only=on`],
    ...['-blockdev', 'driver=qcow2,node-name=base,file=base-file,read-only=on'],
    ...['-blockdev', `${file},node-name=overlay-file,filename=/dev/fdset/1,cache.no-flush=on`],
    ...['-blockdev', 'driver=qcow2,node-name=overlay,file=overlay-file,backing=base,cache.no-flush=on'],
    ...['-device', 'virtio-blk-pci,id=disk,drive=overlay,addr=0x2'],
  ]
}

/** A port for each device that comes and goes. */
function slotOptions(): string[] {
  return Array.from({ length: SLOTS }, (_, index) => {
    const address = `0x${(4 + Math.floor(index / 8)).toString(16)}.${index % 8}`
    return ['-device', `pcie-root-port,id=${slotName(index)},chassis=${index + 1},addr=${address},multifunction=on`]
  }).flat()
}

export const slotName = (index: number): string => `slot${index}`

function seedOptions(): string[] {
  return [
    ...['-add-fd', `fd=${DESCRIPTORS.seed},set=${SEED_FDSET}`],
    ...['-blockdev', `driver=file,locking=off,node-name=${SEED_DEVICE},filename=/dev/fdset/${SEED_FDSET},read-only=on`],
    ...['-device', `virtio-blk-pci,id=${SEED_DEVICE},drive=${SEED_DEVICE},bus=${slotName(SEED_SLOT)}`],
  ]
}

/** The set of files that the seed disk is in. */
export const SEED_FILES = { 'fdset-id': SEED_FDSET } as const
