import { existsSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Result, runInThread } from '../../network/local/tool-thread.js'
import { withTemporaryDirectory } from '../../process/temporary-directory.js'
import { ComputeUnavailable } from '../driver.js'
import { EXIT_PORT, PROOF_STATUS, proofFirmware } from './proof-firmware.js'

/** How the host runs a machine's processors. `why` is a clause for people. */
export type Acceleration = { kind: 'kvm' } | { kind: 'tcg'; why: string }

export const QEMU = 'qemu-system-x86_64'
const DEVICE = '/dev/kvm'
const LIMIT_MS = 3_000

/** What the machine with the firmware of proof-firmware.ts proves. Pure. */
export function judgeProof(result: Result): Acceleration {
  const because = (why: string): Acceleration => ({ kind: 'tcg', why })
  if (result.kind === 'failed') return because(`${QEMU} could not be started: ${result.reason}`)
  if (result.kind === 'stuck') return because(`${DEVICE} hangs: not even killing ${QEMU} helped`)
  const { code, signal, stderr } = result
  if (code === PROOF_STATUS) return { kind: 'kvm' }
  if (signal !== null) return because(`${DEVICE} hangs: a tiny machine did not finish within ${LIMIT_MS / 1000} s`)
  const complaint = stderr.trim().split('\n').at(-1)?.replace(`${QEMU}: `, '')
  return because(`${DEVICE} does not work: ${complaint || `${QEMU} ended with status ${code}`}`)
}

/**
 * How machines of this host run. @param setting `auto` chooses by what works
 * @throws ComputeUnavailable if the setting asks for KVM, which does not work
 */
export async function chooseAcceleration(setting: 'auto' | Acceleration['kind']): Promise<Acceleration> {
  if (setting === 'tcg') return { kind: 'tcg', why: 'the setting compute.acceleration says so' }
  const found = await probeAcceleration()
  if (setting === 'auto' || found.kind === 'kvm') return found
  throw new ComputeUnavailable(
    `Virtual machines cannot run with KVM, as the setting compute.acceleration says: ${found.why}.`,
  )
}

let probed: Promise<Acceleration> | null = null

/**
 * Whether KVM works on this host, tried with a tiny machine. The device alone proves nothing: it may be there and hang.
 * The result is kept until the process ends.
 */
export function probeAcceleration(): Promise<Acceleration> {
  probed ??= probe().catch((error: unknown) => {
    probed = null
    throw error
  })
  return probed
}

async function probe(): Promise<Acceleration> {
  if (!existsSync(DEVICE)) return { kind: 'tcg', why: `there is no ${DEVICE}` }
  return withTemporaryDirectory(join(tmpdir(), 'krater-kvm-'), async directory => {
    const firmware = join(directory, 'firmware')
    writeFileSync(firmware, proofFirmware())
    return judgeProof(await runInThread({ argv: [QEMU, ...proofOptions(firmware)], input: '', timeoutMs: LIMIT_MS }))
  })
}

const proofOptions = (firmware: string): string[] => [
  ...['-machine', 'pc', '-accel', 'kvm', '-cpu', 'host', '-m', '16'],
  ...['-no-user-config', '-nodefaults', '-display', 'none', '-sandbox', 'on', '-no-reboot'],
  ...['-bios', firmware, '-device', `isa-debug-exit,iobase=${EXIT_PORT},iosize=1`],
]
