import { NetworkFailure } from '../network/configure.js'
import { findByArgument, isAlive, killIfRunning } from '../process/process-table.js'
import { run } from '../process/run.js'
import { waitFor } from '../time/wait.js'
import { type Ruleset, readListing, TABLE, withoutLearned } from './ruleset.js'

/** More than the longest change takes on a busy machine. */
const TIMEOUT_MS = 30_000

/** Runs one transaction. @throws NetworkFailure with nft's words; then nothing has changed */
export async function commit(text: string): Promise<void> {
  if (text === '') return
  const { status, stderr } = await run('nft', ['-f', '-'], { input: text, timeoutMs: TIMEOUT_MS })
  if (status !== 0) throw new NetworkFailure(`nft: ${stderr.trim().slice(0, 1_000)}`)
}

/** @returns the table as text, empty if there is none. @throws NetworkFailure if nft cannot say */
async function list(...options: readonly string[]): Promise<string> {
  const { status, stdout, stderr } = await run('nft', [...options, 'list', 'table', ...TABLE.split(' ')], {
    timeoutMs: TIMEOUT_MS,
  })
  if (status === 0) return stdout
  // Whoever takes a table for absent adds its rules a second time.
  if (stderr.includes('No such file or directory')) return ''
  throw new NetworkFailure(`nft: ${stderr.trim().slice(0, 1_000) || 'cannot list the table'}`)
}

/** What the table holds but for what the kernel counts and learns: equal texts, equal contents. @throws NetworkFailure */
export const contents = async (): Promise<string> => withoutLearned(await list('-s'))

/** @see readListing @throws NetworkFailure */
export const observeRuleset = async (): Promise<Ruleset> => readListing(await list('-s', '-t'))

/**
 * Ends transactions of an agent that was killed. Later, they would change tables that this agent has read. Call it
 * before this agent's first transaction.
 */
export async function endUnfinished(): Promise<void> {
  const unfinished = findByArgument('nft', '-f')
  for (const { pid } of unfinished) killIfRunning(pid)
  await waitFor(() => (unfinished.some(isAlive) ? null : true), { timeoutMs: TIMEOUT_MS })
}

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
