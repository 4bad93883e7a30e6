import { createLog } from '../../../log/log.js'
import { hostMachines } from '../../wiring/drivers.js'

/** What an amphora's machine on this host has said on its console; null if it has none. */
export async function consoleOf(directory: string, amphoraId: string): Promise<string | null> {
  for (const driver of await hostMachines(directory, createLog('amphora', 'warn'))) {
    const text = (await driver.console?.(amphoraId)) ?? null
    if (text !== null) return text
  }
  return null
}
