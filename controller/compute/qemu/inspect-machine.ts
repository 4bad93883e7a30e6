import * as z from 'zod'
import { readProcessStat } from '../../process/process-stat.js'
import type { Inspection } from '../driver.js'
import { judge, standsStill } from '../host/evidence.js'
import { firstProcess } from '../host/holder.js'
import type { MachineDirectory } from '../host/machine-directory.js'
import { askMachine } from './ask-machine.js'
import { withQmp } from './qmp/client.js'

/** An inspection must not wait for long. */
const GREETING_LIMIT_MS = 2_000

const statusSchema = z.object({ running: z.boolean(), status: z.string().max(40) })

/**
 * What the host can say about a virtual machine without any network: whether it runs, by its QEMU, and what it carries, by
 * its serial line.
 * @param holder the process that holds the machine
 * @returns null if nothing is proven
 */
export async function inspectMachine(holder: number, files: MachineDirectory): Promise<Inspection | null> {
  const stands = (finding: string): Inspection => ({ serves: false, forwards: false, finding })
  const qemu = firstProcess(holder)
  const stat = qemu === null ? null : readProcessStat(qemu)
  if (stat !== null && standsStill(stat.state)) return stands('QEMU is stopped')
  try {
    const { running, status } = await withQmp(
      files.monitor,
      qmp => qmp.execute('query-status', { answer: statusSchema }),
      { greetingLimitMs: GREETING_LIMIT_MS },
    )
    if (!running) return stands(`the machine does not run: ${status}`)
  } catch {
    // A failed inspection must not look like a dead machine.
    return null
  }
  const evidence = await askMachine(files.evidence)
  return evidence === null ? null : judge(evidence)
}
