import { NetworkFailure } from '../network/configure.js'
import { run } from '../process/run.js'
import { type Ruleset, readListing, TABLE } from './ruleset.js'

/** More than the longest change takes on a busy machine. */
const TIMEOUT_MS = 30_000

/** Runs one transaction. @throws NetworkFailure with nft's words; then nothing has changed */
export async function commit(text: string): Promise<void> {
  if (text === '') return
  const { status, stderr } = await run('nft', ['-f', '-'], { input: text, timeoutMs: TIMEOUT_MS })
  if (status !== 0) throw new NetworkFailure(`nft: ${stderr.trim().slice(0, 1_000)}`)
}

/** The table without elements and counters, as text: it changes when somebody changes a rule. Empty without a table. */
export async function listing(): Promise<string> {
  const { status, stdout } = await run('nft', ['-s', '-t', 'list', 'table', ...TABLE.split(' ')], {
    timeoutMs: TIMEOUT_MS,
  })
  return status === 0 ? stdout : ''
}

/** @see readListing */
export const observeRuleset = async (): Promise<Ruleset> => readListing(await listing())
