import * as z from 'zod'
import type { Database } from '../database/connection.js'
import { many, one } from '../database/query.js'
import { sql } from '../database/sql.js'
import { SIGN_SECONDS } from './registry.js'

const processSchema = z.object({
  name: z.string(),
  pid: z.number(),
  version: z.string(),
  started_at: z.string(),
  /** Seconds since its last sign of life. */
  silent_seconds: z.number(),
  /** Load balancers, orders and the like that it holds now. */
  leases: z.number(),
})

const hostSchema = z.object({
  id: z.string(),
  name: z.string(),
  address: z.string().nullable(),
  instance: z.string().nullable(),
  version: z.string().nullable(),
  added_at: z.string(),
  /** Seconds since the last sign of life of any of its processes; null if there was none. */
  silent_seconds: z.number().nullable(),
  /** Time of that sign of life, as `declareGone` takes it. */
  sign: z.string().nullable(),
  /** Seconds since another host heard one of its amphorae; null if none ever did. */
  amphorae_heard_seconds: z.number().nullable(),
  gone_at: z.string().nullable(),
  removed_at: z.string().nullable(),
  /** Amphorae whose machines are bound to it. */
  amphorae: z.number(),
  load_balancers: z.number(),
  processes: z.array(processSchema),
})

export type HostRow = z.output<typeof hostSchema>

/**
 * How a host is. `new`: it was added and has never started. `slow`: its signs of life are missing, and nothing shows that
 * it is gone. `gone`: its load balancers move to other hosts.
 */
export type HostState = 'alive' | 'slow' | 'gone' | 'new'

const SLOW_SECONDS = SIGN_SECONDS * 5

export function hostState({ silent_seconds: silent, gone_at: goneAt }: HostRow): HostState {
  if (goneAt !== null) return 'gone'
  if (silent === null) return 'new'
  return silent > SLOW_SECONDS ? 'slow' : 'alive'
}

/** Where the other controller hosts can be reached, as far as they say. */
export async function otherAddresses(database: Database, hostId: string): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ address: string }>`
      SELECT address FROM controller_host
       WHERE id <> ${hostId} AND address IS NOT NULL AND removed_at IS NULL ORDER BY address`,
  )
  return rows.map(({ address }) => address)
}

/** Where the controller hosts can be reached, as far as they say; those that are not known to be gone first. */
export async function hostAddresses(database: Database): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ address: string }>`
      SELECT address FROM controller_host
       WHERE address IS NOT NULL AND removed_at IS NULL ORDER BY gone_at IS NOT NULL, address`,
  )
  return rows.map(({ address }) => address)
}

/** The controller hosts with their processes, by name; removed ones as long as something is bound to them. */
export async function readHosts(database: Database): Promise<HostRow[]> {
  const { hosts } = await one(
    database,
    sql<{ hosts: unknown }>`
     SELECT coalesce(json_agg(h ORDER BY h.name), '[]') AS hosts FROM (
       SELECT host.id, host.name, host.address, host.instance, host.version, host.added_at, host.gone_at, host.removed_at,
              host.last_seen_at::text AS sign,
              extract(epoch FROM now() - host.last_seen_at)::float8 AS silent_seconds,
              extract(epoch FROM now() - host.amphorae_heard_at)::float8 AS amphorae_heard_seconds,
              (SELECT count(*)::int FROM amphora WHERE host_id = host.id) AS amphorae,
              (SELECT count(*)::int FROM load_balancer WHERE host_id = host.id) AS load_balancers,
              (SELECT coalesce(json_agg(p ORDER BY p.name, p.started_at), '[]') FROM (
                 SELECT process.name, process.pid, process.version, process.started_at,
                        extract(epoch FROM now() - process.last_seen_at)::float8 AS silent_seconds,
                        (SELECT count(*)::int FROM load_balancer held
                          WHERE held.lease_until > now() AND starts_with(held.lease_owner, process.owner || ' ')) AS leases
                   FROM controller_process process WHERE process.host_id = host.id) p) AS processes
         FROM controller_host host
        WHERE host.removed_at IS NULL OR EXISTS (SELECT FROM amphora WHERE host_id = host.id)
           OR EXISTS (SELECT FROM load_balancer WHERE host_id = host.id)) h`,
  )
  return z.array(hostSchema).parse(hosts)
}
