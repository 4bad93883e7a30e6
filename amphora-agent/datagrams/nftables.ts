import { NetworkFailure } from '../network/configure.js'
import { run } from '../process/run.js'
import { type Ruleset, readListing, TABLE, withoutLearned } from './ruleset.js'

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

/** What the table holds but for what the kernel counts and learns: equal texts, equal contents. */
export async function contents(): Promise<string> {
  const { stdout } = await run('nft', ['-s', 'list', 'table', ...TABLE.split(' ')], { timeoutMs: TIMEOUT_MS })
  return withoutLearned(stdout)
}

/** @see readListing */
export const observeRuleset = async (): Promise<Ruleset> => readListing(await listing())

/** Packets and bytes of a named counter. */
export type Count = { packets: number; bytes: number }

/** @returns the table's counters by name. @throws Error if nft fails, as without a table */
export async function readCounters(): Promise<Map<string, Count>> {
  const { status, stdout, stderr } = await run('nft', ['-j', 'list', 'counters', 'table', ...TABLE.split(' ')])
  if (status !== 0) throw new Error(`nft: ${stderr.trim().slice(0, 500)}`)
  const { nftables } = JSON.parse(stdout) as { nftables: { counter?: { name: string } & Count }[] }
  return new Map(
    nftables.flatMap(({ counter }) =>
      counter === undefined ? [] : [[counter.name, { packets: counter.packets, bytes: counter.bytes }] as const],
    ),
  )
}
