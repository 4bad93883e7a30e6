import type { Database } from '../../database/connection.js'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { WAKE_CHANNEL } from '../../load-balancer/change/wake-channel.js'
import type { Logger } from '../../log/log.js'
import { isUuid } from '../../network/visibility.js'
import type { Northbound } from '../../ovn/northbound/northbound.js'
import { listenForWakeUps } from '../../queue/wake-up.js'
import { OVN_FAULT } from './faults.js'
import { loadBalancerOf, ownerOf } from './rows/load-balancer-rows.js'
import { networksConcerned, surroundingOf } from './surroundings.js'

/** Notified by triggers on the tables of the network service. */
const SURROUNDINGS_CHANNEL = 'krater_surroundings'
/** Changes within this time are looked at together. */
const GATHER_MS = 100

export type DueOptions = {
  /** The role of the load balancer service. */
  database: Database
  /** The role of the network service. */
  networkDatabase: Database
  /** Of the network service, for the listening connection. */
  networkUrl: string
  northbound: Northbound
  log: Logger
}

/**
 * Makes load balancers due whose rows others have changed, or around which networks have changed: a worker looks at them
 * again.
 */
export async function watchRows({
  database,
  networkDatabase,
  networkUrl,
  northbound,
  log,
}: DueOptions): Promise<{ stop: () => Promise<void> }> {
  let touched = new Set<string>()
  let networks = new Set<string>()
  let addresses = new Set<string>()
  let areAll = false
  let faults = new Set<string>()
  let timer: NodeJS.Timeout | undefined
  let asking = Promise.resolve()

  /** Rows of load balancers that the tables do not know, as after a restore of an old copy. */
  const removeStrangers = async (ids: readonly string[]): Promise<void> => {
    const standing = new Set(northbound.owners().flatMap(owner => loadBalancerOf(owner) ?? []))
    const asked = ids.filter(id => standing.has(id))
    if (asked.length === 0) return
    const known = await many(
      database,
      sql<{ id: string }>`SELECT id::text FROM load_balancer WHERE id = ANY(${asked.filter(isUuid)}::uuid[])`,
    )
    const strangers = asked.filter(id => !known.some(row => row.id === id))
    if (strangers.length === 0) return
    await northbound.ensure(strangers.map(id => ({ owner: ownerOf(id), generation: 0, rows: [] })))
    log.warn({ loadBalancers: strangers }, 'removed rows of OVN of load balancers that do not exist')
  }
  const ask = async (): Promise<void> => {
    const asked = {
      ...{ ids: [...touched], networks: [...networks], addresses: [...addresses], all: areAll, faults: [...faults] },
    }
    touched = new Set()
    networks = new Set()
    addresses = new Set()
    areAll = false
    faults = new Set()
    try {
      const homes = asked.networks.length === 0 ? [] : await networksConcerned(networkDatabase, asked.networks)
      // Somebody at work on one sees the change, or looks again by itself.
      await many(
        database,
        sql`WITH due AS (
              UPDATE load_balancer SET recheck_at = now(), retry_at = least(retry_at, now())
               WHERE provider = 'ovn' AND id IN (
                 SELECT id FROM load_balancer WHERE ${asked.all}
                 UNION ALL
                 SELECT id FROM load_balancer
                  WHERE provider = 'ovn' AND fault IS NOT NULL AND fault ->> 'code' = ANY(${asked.faults}::text[])
                 UNION ALL
                 SELECT id FROM load_balancer WHERE id = ANY(${asked.ids.filter(isUuid)}::uuid[])
                 UNION ALL
                 SELECT id FROM load_balancer WHERE provider = 'ovn' AND vip_network_id = ANY(${homes}::uuid[])
                 UNION ALL
                 SELECT load_balancer_id FROM member
                  WHERE change <> 'delete' AND address = ANY(${asked.addresses}::text[]))
              RETURNING id)
            SELECT pg_notify(${WAKE_CHANNEL}, id::text) FROM due`,
      )
      await removeStrangers(asked.ids)
    } catch (error) {
      log.warn({ err: error }, 'load balancers in OVN could not be rechecked; trying again')
      for (const id of asked.ids) touched.add(id)
      for (const id of asked.networks) networks.add(id)
      for (const address of asked.addresses) addresses.add(address)
      for (const code of asked.faults) faults.add(code)
      areAll ||= asked.all
      later()
    }
  }
  const later = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined
      asking = asking.then(ask)
    }, GATHER_MS)
  }

  const end = northbound.onOwners(owners => {
    for (const owner of owners) {
      const id = loadBalancerOf(owner)
      if (id !== null) touched.add(id)
      // What it waits for may have come.
      else faults.add(OVN_FAULT.networkNotReady)
    }
    later()
  })
  let isServing = false
  const endServing = northbound.client.onChange(() => {
    const serves = northbound.client.state.address !== null
    if (serves && !isServing) {
      for (const code of Object.values(OVN_FAULT)) faults.add(code)
      later()
    }
    isServing = serves
  })
  const wakeUps = await listenForWakeUps({
    ...{ databaseUrl: networkUrl, channel: SURROUNDINGS_CHANNEL, log },
    onWake: payload => {
      const changed = surroundingOf(payload)
      if (changed === null) areAll = true
      else if (changed.kind === 'network') networks.add(changed.id)
      else addresses.add(changed.address)
      later()
    },
  })
  return {
    stop: async () => {
      end()
      endServing()
      clearTimeout(timer)
      await wakeUps.stop()
      await asking
    },
  }
}
