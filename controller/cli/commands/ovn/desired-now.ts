import type { Database } from '../../../database/connection.js'
import { many } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { readTree } from '../../../load-balancer/tree/read-tree.js'
import { desiredTopology, isOfNetworks, type OvnPlace } from '../../../network/ovn/desired-topology.js'
import type { Desired, Owner } from '../../../ovn/northbound/desired.js'
import { factsOf, type OvnSources } from '../../../provider/ovn/facts-of.js'
import { loadBalancerOf, loadBalancerRows, ownerOf } from '../../../provider/ovn/rows/load-balancer-rows.js'
import { AddressMissing, findSharedAddresses, type SharedAddresses } from '../../../provider/ovn/shared-addresses.js'
import { ProvisioningFault } from '../../../provider/provider.js'

/**
 * Load balancers that are read at once. Each connection plans the statements anew, for longer than they take: 300 load
 * balancers of 5 listeners and 50 members take some 3 s by 4 connections, 5 s by 10.
 */
const AT_ONCE = 4

/** Where it is said what should stand in OVN. */
export type Tables = OvnSources & {
  /** The role of the load balancer service. */
  database: Database
  place: OvnPlace
}

/** Why nobody can say what should stand for a load balancer. */
export type Reason = 'changing' | 'failed' | 'portless' | 'down'

export type NotCompared = { owner: Owner; reason: Reason }

/** What the tables say at a moment. */
type Reading = { desired: Desired[]; notCompared: NotCompared[] }

/**
 * Reads what should stand in OVN.
 * @param present owners that have rows: nothing should stand for those that the tables do not have
 */
export async function readDesired(tables: Tables, present: readonly Owner[]): Promise<Reading> {
  const topology = await desiredTopology(tables.networkDatabase, tables.place)
  const { desired, notCompared } = await readBalancers(tables, sql`true`)
  return withStrangers({ desired: [...topology, ...desired], notCompared }, present)
}

/** The same for these owners only. */
export async function readDesiredOf(tables: Tables, owners: readonly Owner[]): Promise<Reading> {
  const ids = owners.flatMap(owner => loadBalancerOf(owner) ?? [])
  const { desired, notCompared } = await readBalancers(tables, sql`id::text = ANY(${ids}::text[])`)
  // Last, as networks have no owner's claim: who writes their rows next has read them just now.
  const topology = owners.some(isOfNetworks) ? await desiredTopology(tables.networkDatabase, tables.place) : []
  const asked = new Set(owners)
  const known = [...topology, ...desired].filter(({ owner }) => asked.has(owner))
  return withStrangers({ desired: known, notCompared }, owners)
}

function withStrangers({ desired, notCompared }: Reading, owners: readonly Owner[]): Reading {
  const known = new Set([...desired, ...notCompared].map(({ owner }) => owner))
  const strangers = owners.filter(owner => !known.has(owner))
  return { desired: [...desired, ...strangers.map(owner => ({ owner, generation: 0, rows: [] }))], notCompared }
}

async function readBalancers(tables: Tables, which: Fragment): Promise<Reading> {
  const balancers = await many(
    tables.database,
    sql<{ id: string; reason: Reason | null }>`
      SELECT id, CASE WHEN generation = applied_generation THEN NULL
                      WHEN fault_generation >= generation THEN 'failed' ELSE 'changing' END AS reason
        FROM load_balancer WHERE provider = 'ovn' AND ${which} ORDER BY created_at, id`,
  )
  const shared = findSharedAddresses(tables.network)
  const reading: Reading = { desired: [], notCompared: [] }
  for (let first = 0; first < balancers.length; first += AT_ONCE) {
    const some = balancers.slice(first, first + AT_ONCE)
    const found = await Promise.all(
      some.map(async ({ id, reason }) => reason ?? (await readBalancer(tables, shared, id))),
    )
    for (const [index, one] of found.entries()) {
      if (typeof one !== 'string') reading.desired.push(one)
      else reading.notCompared.push({ owner: ownerOf(some[index]?.id ?? ''), reason: one })
    }
  }
  return reading
}

async function readBalancer(
  tables: Tables,
  shared: Pick<SharedAddresses, 'use'>,
  id: string,
): Promise<Desired | Reason> {
  const tree = await readTree(tables.database, id)
  if (tree === null || tree.generation !== tree.appliedGeneration) return 'changing'
  try {
    const { facts, isNetworkUp } = await factsOf(tree, { ...tables, network: makingNothing(tables) }, shared)
    return isNetworkUp ? loadBalancerRows(tree, facts) : 'down'
  } catch (error) {
    if (error instanceof AddressMissing || error instanceof ProvisioningFault) return 'portless'
    throw error
  }
}

const makingNothing = ({ network }: Tables): OvnSources['network'] => ({
  ...network,
  ensurePort: async ({ name }) => {
    throw new AddressMissing(`There is no port ${name}.`)
  },
})
