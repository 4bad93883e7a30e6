import manifest from '../package.json' with { type: 'json' }
import { run } from '../process/run.js'
import type { Boot } from '../protocol/boot.js'
import { PROTOCOL_VERSION } from '../protocol/version.js'

/** An emulated machine takes several seconds. */
const LIMIT_MS = 50_000
const MAX_OUTPUT = 2_000

/** Option of the agent: it loads, reads its boot data, prints what it is, and ends. */
export const CHECK_OPTION = 'check'

/** What an agent prints when it is only checked. That it can read the boot data was seen before. */
export function printCheck({ amphoraId }: Boot): void {
  console.log(JSON.stringify({ version: manifest.version, protocolVersion: PROTOCOL_VERSION, amphoraId }))
}

/**
 * Starts another agent only to check it.
 * @param file its bundle
 * @returns why it cannot run here, in its own words; null if it can
 */
export async function checkAgent(file: string, bootFile: string): Promise<string | null> {
  const args = [...process.execArgv, file, `--${CHECK_OPTION}`, '--boot', bootFile]
  try {
    const { status, stderr } = await run(process.execPath, args, { timeoutMs: LIMIT_MS })
    if (status === 0) return null
    return stderr.trim().slice(-MAX_OUTPUT) || `it ended with ${status === null ? 'a signal' : `status ${status}`}`
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}
