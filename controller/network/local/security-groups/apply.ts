import * as z from 'zod'
import { IpCommandError, ipBatch } from '../ip-command.js'
import { bridgeOf } from '../names.js'
import { nft, nftJson, nftTable } from '../nft-command.js'
import { type Filters, networksOf } from './filters.js'
import {
  additionCommands,
  FILTER_TABLE,
  type FilterNames,
  type FilterObjects,
  filterCommands,
  filterObjects,
} from './plan-filters.js'
import { TRACKING_TABLE } from './plan-tracking.js'
import { bridgesOf, settleBridges, trackingLine, trackNetworks } from './tracking.js'

/**
 * Puts the filters of one port in force, and leaves all others alone. Call it before the port's interface joins its
 * bridge, which must exist.
 * @param namespace the fabric's
 * @throws IpCommandError if they are not in force
 */
export async function addFilters(namespace: string, filters: Filters): Promise<void> {
  const networkIds = networksOf(filters)
  await trackNetworks(namespace, networkIds)
  await nft(namespace, additionCommands(filterObjects(filters)))
  const failure = await ipBatch(
    namespace,
    networkIds.map(id => trackingLine(bridgeOf(id), true)),
  )
  const bridges = await bridgesOf(namespace)
  if (networkIds.every(id => bridges.get(bridgeOf(id)) === true)) return
  throw failure ?? new IpCommandError('The network of a filtered port does not track connections')
}

/** What the kernel has after a call of applyFilters. */
export type AppliedFilters = { objects: FilterObjects; state: string }

/**
 * Makes the kernel filter as these say, and nothing else. Connections that they no longer allow end; all others stay.
 * @param known the answer of the last call, if nothing changed the kernel since; else null
 */
export async function applyFilters(
  namespace: string,
  filters: Filters,
  known: AppliedFilters | null,
): Promise<AppliedFilters> {
  const objects = filterObjects(filters)
  const networkIds = networksOf(filters)
  await trackNetworks(namespace, networkIds)
  const present = await partsOf(namespace)
  await nft(namespace, filterCommands(objects, known?.objects ?? null, present))
  await settleBridges(namespace, networkIds)
  const state = await filterState(namespace)
  if (state === null) throw new IpCommandError('The table of security groups is gone')
  return { objects, state }
}

/** Whether the kernel has ever filtered here: without filters, it need not begin. */
export async function hasFilters(namespace: string): Promise<boolean> {
  return (await nftTable(namespace, FILTER_TABLE)) !== null
}

/** A text that changes with every change of tables and bridges, but not with traffic; null if the table is gone. */
export async function filterState(namespace: string): Promise<string | null> {
  const table = await nftTable(namespace, FILTER_TABLE)
  if (table === null) return null
  const [tracking, bridges] = [await nftTable(namespace, TRACKING_TABLE), await bridgesOf(namespace)]
  const tracked = [...bridges].filter(([, on]) => on).map(([name]) => name)
  return JSON.stringify([table, tracking, tracked.sort()])
}

const partsSchema = z.object({
  nftables: z.array(
    z.object({
      set: z.object({ name: z.string() }).optional(),
      chain: z.object({ name: z.string(), hook: z.string().optional() }).optional(),
    }),
  ),
})

/** The sets and chains of the table that belong to groups and ports. */
async function partsOf(namespace: string): Promise<FilterNames> {
  const answer = await nftJson(namespace, ['table', ...FILTER_TABLE.split(' ')])
  if (answer === null) return { sets: [], chains: [] }
  const { nftables } = partsSchema.parse(answer)
  return {
    sets: nftables.flatMap(({ set }) => set?.name ?? []),
    chains: nftables.flatMap(({ chain }) => (chain === undefined || chain.hook !== undefined ? [] : [chain.name])),
  }
}
