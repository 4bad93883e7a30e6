import * as z from 'zod'
import { IpCommandError, ipBatch } from '../ip-command.js'
import { bridgeOf } from '../names.js'
import { nft, nftJson, nftTable, stateOf } from '../nft-command.js'
import { type Filters, networksOf } from './filters.js'
import {
  additionCommands,
  FILTER_TABLE,
  type FilterObjects,
  type FilterParts,
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

const TABLE_WORDS = ['table', ...FILTER_TABLE.split(' ')]

/** What the kernel has after a call of applyFilters: what was desired, a text for its table, and one for everything. */
export type AppliedFilters = { objects: FilterObjects; table: string; state: string }

/**
 * Makes the kernel filter as these say, and nothing else. Connections that they no longer allow end; all others stay.
 * @param read reads the filters. Whatever a process has added before is among them; what one adds meanwhile stays
 * @param known the answer of the last call. What changed since is written again
 */
export async function applyFilters(
  namespace: string,
  read: () => Promise<Filters>,
  known: AppliedFilters | null,
): Promise<{ filters: Filters; applied: AppliedFilters }> {
  const answer = await nftJson(namespace, TABLE_WORDS)
  const isAsLeft = answer !== null && stateOf(answer) === known?.table
  const filters = await read()
  const objects = filterObjects(filters)
  const networkIds = networksOf(filters)
  await trackNetworks(namespace, networkIds)
  await nft(namespace, filterCommands(objects, isAsLeft ? (known?.objects ?? null) : null, partsOf(answer)))
  await settleBridges(namespace, networkIds)
  const table = await nftTable(namespace, FILTER_TABLE)
  if (table === null) throw new IpCommandError('The table of security groups is gone')
  return { filters, applied: { objects, table, state: await wholeState(namespace, table) } }
}

/** Whether the kernel has ever filtered here: without filters, it need not begin. */
export async function hasFilters(namespace: string): Promise<boolean> {
  return (await nftTable(namespace, FILTER_TABLE)) !== null
}

/** A text that changes with every change of tables and bridges, but not with traffic; null if the table is gone. */
export async function filterState(namespace: string): Promise<string | null> {
  const table = await nftTable(namespace, FILTER_TABLE)
  return table === null ? null : wholeState(namespace, table)
}

async function wholeState(namespace: string, table: string): Promise<string> {
  const [tracking, bridges] = [await nftTable(namespace, TRACKING_TABLE), await bridgesOf(namespace)]
  const tracked = [...bridges].filter(([, on]) => on).map(([name]) => name)
  return JSON.stringify([table, tracking, tracked.sort()])
}

const elementSchema = z.tuple([z.string(), z.union([z.number(), z.object({ jump: z.object({ target: z.string() }) })])])

const partsSchema = z.object({
  nftables: z.array(
    z.object({
      set: z.object({ name: z.string() }).optional(),
      map: z.object({ name: z.string(), elem: z.array(elementSchema).default([]) }).optional(),
      chain: z.object({ name: z.string(), hook: z.string().optional() }).optional(),
    }),
  ),
})

/** The parts of the table that belong to groups and ports. @param answer what nftJson told of it */
function partsOf(answer: unknown): FilterParts {
  const { nftables } = answer === null ? { nftables: [] } : partsSchema.parse(answer)
  const contents = new Map(
    nftables.flatMap(({ map }) => (map === undefined ? [] : [[map.name, new Map(map.elem.map(contentOf))] as const])),
  )
  const mapNamed = (name: string) => contents.get(name) ?? new Map<string, string>()
  return {
    sets: nftables.flatMap(({ set }) => set?.name ?? []),
    chains: nftables.flatMap(({ chain }) => (chain === undefined || chain.hook !== undefined ? [] : [chain.name])),
    maps: { projects: mapNamed('projects'), to_ports: mapNamed('to_ports'), from_ports: mapNamed('from_ports') },
  }
}

const contentOf = ([name, value]: z.output<typeof elementSchema>): [string, string] => [
  name,
  typeof value === 'number' ? `0x${value.toString(16)}` : value.jump.target,
]
