import * as z from 'zod'
import { INTERFACE_SLOTS, SEED_DEVICE, SEED_FILES, slotName } from './command-line.js'
import { type Qmp, QmpRefused } from './qmp/client.js'
import { QmpProtocolError } from './qmp/messages.js'

/** A network interface of a virtual machine, as its QEMU knows it. */
export type Peripheral = {
  /** QEMU's name of the device; says the slot and the tap device. */
  id: string
  slot: number
  tap: string
}

/** How long a guest may take to let go of a device. Measured: under a second, emulated on a busy host. */
const RELEASE_LIMIT_MS = 5_000

const deviceId = (slot: number, tap: string): string => `nic-${slot}-${tap}`
const backendOf = (tap: string): string => `tap-${tap}`

/** A compromised QEMU may name devices without end; each would be waited for. */
const MAX_DEVICES = 100
const qomList = z.array(z.object({ name: z.string(), type: z.string() })).max(MAX_DEVICES)
const namedNodes = z.array(z.object({ 'node-name': z.string() })).max(MAX_DEVICES)
const nothing = z.unknown()

/**
 * The interfaces among QEMU's devices. Pure.
 * @param names of all devices that were added by name
 * @throws QmpProtocolError if there are two in one slot, or slots that no machine has
 */
export function peripheralsIn(names: readonly string[]): Peripheral[] {
  const present = names.flatMap(id => {
    const [, slot, tap] = /^nic-(\d+)-(p[0-9a-f]{11})$/.exec(id) ?? []
    return slot === undefined || tap === undefined ? [] : [{ id, slot: Number(slot), tap }]
  })
  const slots = new Set(present.map(({ slot }) => slot).filter(slot => slot < INTERFACE_SLOTS))
  if (slots.size < present.length) throw new QmpProtocolError('QEMU has network interfaces that Krater did not add.')
  return present
}

/** The first slot without an interface; null if all are taken. Pure. */
export function freeSlot(present: readonly Peripheral[]): number | null {
  const taken = new Set(present.map(({ slot }) => slot))
  const slot = Array.from({ length: INTERFACE_SLOTS }, (_, index) => index).find(index => !taken.has(index))
  return slot ?? null
}

const deviceNames = async (qmp: Qmp): Promise<string[]> =>
  (await qmp.execute('qom-list', { arguments: { path: '/machine/peripheral' }, answer: qomList })).map(
    ({ name }) => name,
  )

/** A machine's network interfaces. */
export const peripherals = async (qmp: Qmp): Promise<Peripheral[]> => peripheralsIn(await deviceNames(qmp))

/** Opens a tap device of QEMU's namespace. */
export async function openTap(qmp: Qmp, tap: string): Promise<void> {
  const words = { type: 'tap', id: backendOf(tap), ifname: tap, script: 'no', downscript: 'no' }
  await qmp.execute('netdev_add', { arguments: words, answer: nothing })
}

/** Adds an interface to the machine, which finds it by its MAC address. */
export async function addInterface(
  qmp: Qmp,
  { slot, tap, macAddress, mtu }: { slot: number; tap: string; macAddress: string; mtu: number },
): Promise<void> {
  const words = {
    driver: 'virtio-net-pci',
    id: deviceId(slot, tap),
    bus: slotName(slot),
    netdev: backendOf(tap),
    mac: macAddress,
    host_mtu: mtu,
    // Nothing boots from the network.
    romfile: '',
  }
  await qmp.execute('device_add', { arguments: words, answer: nothing })
}

/**
 * Takes an interface away. QEMU lets go of its tap device in any case, so nothing passes any more.
 * @returns false if the machine holds on to the device, which keeps its slot then
 */
export async function removeInterface(qmp: Qmp, { id, tap }: Peripheral): Promise<boolean> {
  const isReleased = await removeDevice(qmp, id)
  await closeTap(qmp, tap)
  return isReleased
}

/** Lets go of a tap device that no interface uses, if it is open. */
export const closeTap = (qmp: Qmp, tap: string): Promise<void> =>
  unlessRefused(qmp.execute('netdev_del', { arguments: { id: backendOf(tap) }, answer: nothing }))

/** What a disk holds that a machine keeps without its contents. */
const EMPTY = 'empty'

/** What became of the disk with the seed: the machine let go of it, got an empty one for it, or has that since before. */
export type SeedEnd = 'released' | 'emptied' | 'empty'

/**
 * Takes the seed, if it is still there: the machine has its files on its own disk now. QEMU forgets it too, whatever the
 * machine does: if it holds on to the disk, the disk becomes an empty one.
 * @param limitMs how long the machine may take to let go of the disk
 * @throws QmpRefused if QEMU keeps the contents
 */
export async function removeSeed(qmp: Qmp, limitMs = RELEASE_LIMIT_MS): Promise<SeedEnd> {
  const end = await endSeedDisk(qmp, limitMs)
  const nodes = await qmp.execute('query-named-block-nodes', { arguments: { flat: true }, answer: namedNodes })
  if (nodes.some(node => node['node-name'] === SEED_DEVICE))
    await qmp.execute('blockdev-del', { arguments: { 'node-name': SEED_DEVICE }, answer: nothing })
  await unlessRefused(qmp.execute('remove-fd', { arguments: SEED_FILES, answer: nothing }))
  return end
}

async function endSeedDisk(qmp: Qmp, limitMs: number): Promise<SeedEnd> {
  const drive = { path: `/machine/peripheral/${SEED_DEVICE}`, property: 'drive' }
  const contents = () => whileThere(qmp, SEED_DEVICE, qmp.execute('qom-get', { arguments: drive, answer: nothing }))
  if ((await contents()) === EMPTY) {
    await askToRelease(qmp, SEED_DEVICE)
    return (await deviceNames(qmp)).includes(SEED_DEVICE) ? 'empty' : 'released'
  }
  if (await removeDevice(qmp, SEED_DEVICE, limitMs)) return 'released'
  const empty = { driver: 'null-co', 'node-name': EMPTY, size: 0, 'read-only': true }
  await unlessRefused(qmp.execute('blockdev-add', { arguments: empty, answer: nothing }))
  await whileThere(qmp, SEED_DEVICE, qmp.execute('qom-set', { arguments: { ...drive, value: EMPTY }, answer: nothing }))
  return (await deviceNames(qmp)).includes(SEED_DEVICE) ? 'emptied' : 'released'
}

/**
 * What a command about a device answers; null if the device is not there, or goes meanwhile.
 * @throws QmpRefused if QEMU refuses and the device is there
 */
async function whileThere(qmp: Qmp, id: string, asked: Promise<unknown>): Promise<unknown> {
  try {
    return await asked
  } catch (error) {
    if (!(error instanceof QmpRefused) || (await deviceNames(qmp)).includes(id)) throw error
    return null
  }
}

/** @returns false if the machine holds on to it */
async function removeDevice(qmp: Qmp, id: string, limitMs = RELEASE_LIMIT_MS): Promise<boolean> {
  if (!(await deviceNames(qmp)).includes(id)) return true
  // A device loses its name a moment before QEMU lets go of what it uses, and says so.
  const gone = qmp.event(({ name, data }) => name === 'DEVICE_DELETED' && data.device === id, limitMs)
  await askToRelease(qmp, id)
  return (await gone) !== null || !(await deviceNames(qmp)).includes(id)
}

/** QEMU refuses for one that is not there, or that the machine was asked for a moment ago. */
const askToRelease = (qmp: Qmp, id: string): Promise<void> =>
  unlessRefused(qmp.execute('device_del', { arguments: { id }, answer: nothing }))

async function unlessRefused(done: Promise<unknown>): Promise<void> {
  try {
    await done
  } catch (error) {
    if (!(error instanceof QmpRefused)) throw error
  }
}
