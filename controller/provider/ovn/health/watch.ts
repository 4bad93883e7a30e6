import type { Database } from '../../../database/connection.js'
import { many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { recordReported } from '../../../health-manager/record-reported.js'
import { readTree } from '../../../load-balancer/tree/read-tree.js'
import type { LoadBalancerTree, MemberNode, PoolNode } from '../../../load-balancer/tree/tree.js'
import type { Logger } from '../../../log/log.js'
import type { Northbound } from '../../../ovn/northbound/northbound.js'
import type { Southbound } from '../../../ovn/southbound/southbound.js'
import { repeat } from '../../../process/repeat.js'
import { probedPortOf } from '../rows/load-balancer-rows.js'
import { ProbeIndex, placeOf } from './probe-index.js'
import { type ProbeStatus, reportedByOvn } from './reported.js'

export type HealthWatch = {
  /** Looks at a load balancer again, once its change is settled. */
  touch: (loadBalancerId: string) => void
  stop: () => Promise<void>
}

const WRITE_SECONDS = 0.5
/** Load balancers, and places, of one round: the others come in the next one. */
const MAX_AT_ONCE = 200

export type HealthWatchOptions = {
  /** The role of the load balancer service. */
  database: Database
  northbound: Northbound
  southbound: Southbound
  /** Of this installation. */
  instance: string
  log: Logger
}

/** Turns what OVN's probes see into operating statuses. Each worker does; they all see the same. */
export function watchHealth({ database, northbound, southbound, instance, log }: HealthWatchOptions): HealthWatch {
  const touched = new Set<string>()
  const probed = new Set<string>()
  const probes = new ProbeIndex(southbound.serviceMonitors())
  let isFirst = true
  const end = southbound.client.onChange(changes => {
    for (const place of probes.follow(changes)) probed.add(place)
  })

  /** The load balancer's rows name the logical port at which a member is probed. */
  const statusOf = (tree: LoadBalancerTree, pool: PoolNode, member: MemberNode): ProbeStatus => {
    const rowOf = (uuid: string) => northbound.client.row('Load_Balancer', uuid)
    const portId = probedPortOf(tree, pool, member, { instance, rowOf })
    if (portId === null) return undefined
    const protocol = pool.healthMonitor?.type === 'UDP-CONNECT' ? 'udp' : 'tcp'
    return probes.statusAt(placeOf(member.address, member.protocolPort), protocol, portId)
  }

  const look = async (ids: readonly string[]): Promise<void> => {
    const trees = (await Promise.all(ids.map(id => readTree(database, id)))).filter(tree => tree !== null)
    const settled = trees.filter(({ generation, appliedGeneration }) => generation === appliedGeneration)
    await recordReported(
      database,
      settled.map(tree => ({
        loadBalancerId: tree.id,
        reported: reportedByOvn(tree, (pool, member) => statusOf(tree, pool, member)),
      })),
    )
    // Those under way are looked at again, after the others.
    for (const tree of trees) if (!settled.includes(tree)) touched.add(tree.id)
  }

  const round = async (): Promise<void> => {
    if (isFirst) for (const id of await allIn(database)) touched.add(id)
    isFirst = false
    const places = takeFrom(probed, MAX_AT_ONCE)
    await orAgain(probed, places, async () => {
      if (places.length > 0) for (const id of await withMembersAt(database, places)) touched.add(id)
    })
    const ids = takeFrom(touched, MAX_AT_ONCE)
    if (ids.length > 0) await orAgain(touched, ids, () => look(ids))
  }

  const stopping = new AbortController()
  const done = repeat('watching members in OVN', WRITE_SECONDS, stopping.signal, log, round)
  return {
    touch: id => touched.add(id),
    stop: async () => {
      end()
      stopping.abort()
      await done
    },
  }
}

/** Takes the first ones out. What comes back meanwhile is new. */
function takeFrom(set: Set<string>, limit: number): string[] {
  const taken = [...set].slice(0, limit)
  for (const one of taken) set.delete(one)
  return taken
}

async function orAgain(set: Set<string>, taken: readonly string[], work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    for (const one of taken) set.add(one)
    throw error
  }
}

const allIn = async (database: Database): Promise<string[]> =>
  (
    await many(
      database,
      sql<{ id: string }>`SELECT id FROM load_balancer WHERE provider = 'ovn' AND change <> 'delete'`,
    )
  ).map(({ id }) => id)

/** The load balancers in OVN with a member at one of these places. */
export async function withMembersAt(database: Database, places: readonly string[]): Promise<string[]> {
  const parts = places.map(place => place.split(' ')).map(([address = '', port]) => ({ address, port: Number(port) }))
  const rows = await many(
    database,
    sql<{ id: string }>`
      SELECT DISTINCT load_balancer.id
        FROM unnest(${parts.map(({ address }) => address)}::text[], ${parts.map(({ port }) => port)}::integer[])
               AS place (address, port)
        JOIN member ON member.address = place.address AND member.protocol_port = place.port AND member.change <> 'delete'
        JOIN pool ON pool.id = member.pool_id JOIN load_balancer ON load_balancer.id = pool.load_balancer_id
       WHERE load_balancer.provider = 'ovn'`,
  )
  return rows.map(({ id }) => id)
}
