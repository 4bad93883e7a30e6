import * as z from 'zod'
import { readProcessStat } from '../../process/process-stat.js'
import type { Inspection } from '../driver.js'
import { firstProcess } from '../host/holder.js'
import { withQmp } from './qmp/client.js'

/** Process states without execution: stopped, traced, dead and zombie. */
const STANDSTILL = /^[TtXZ]$/
/** An inspection must not wait for long. */
const GREETING_LIMIT_MS = 2_000

const statusSchema = z.object({ running: z.boolean(), status: z.string() })

/**
 * What the host can say about a virtual machine without the management network. It proves that a machine does not run, by
 * its QEMU; never that it serves, for nothing on the host shows what the machine does.
 * @param holder the process that holds the machine
 * @param monitor QEMU's socket
 * @returns null if nothing is proven
 */
export async function inspectMachine(holder: number, monitor: string): Promise<Inspection | null> {
  const stands = (finding: string): Inspection => ({ serves: false, forwards: false, finding })
  const qemu = firstProcess(holder)
  const stat = qemu === null ? null : readProcessStat(qemu)
  if (stat !== null && STANDSTILL.test(stat.state)) return stands('QEMU is stopped')
  try {
    const { running, status } = await withQmp(monitor, qmp => qmp.execute('query-status', { answer: statusSchema }), {
      greetingLimitMs: GREETING_LIMIT_MS,
    })
    return running ? null : stands(`the machine does not run: ${status}`)
  } catch {
    // A failed inspection must not look like a dead machine.
    return null
  }
}
