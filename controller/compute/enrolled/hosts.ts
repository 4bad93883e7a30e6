import * as z from 'zod'
import type { Database } from '../../database/connection.js'
import { execute, many, maybeOne } from '../../database/query.js'
import { assignments, type Bound, insertion, json, prepared, sql } from '../../database/sql.js'

export type HostState = 'enrolling' | 'free' | 'in use' | 'wiping' | 'broken' | 'retiring'

const interfacesSchema = z.array(
  z.object({ networkId: z.string(), networkName: z.string(), mac: z.string(), name: z.string() }),
)
const pluggedSchema = z.record(
  z.string(),
  z.object({
    networkId: z.string(),
    /** Those that it may send from. */
    addresses: z.array(z.string()),
    /** Those that nobody else has; hosts of an earlier version lack them until they are plugged again. */
    own: z.array(z.object({ subnetId: z.string(), address: z.string() })).default([]),
  }),
)

const toldSchema = z.array(z.string()).nullable()

export type EnrolledHost = {
  id: string
  name: string
  /** The account that enrolled it; operators log in with it. */
  login: string
  address: string
  port: number
  /** Pinned, in SSH wire format. */
  hostKey: Buffer
  zone: string
  /** Hosts with the same value fail together. */
  physicalHost: string
  /** The controller's address, as the host sees it. */
  controllerAddress: string
  /** What leads to networks. */
  interfaces: z.output<typeof interfacesSchema>
  state: HostState
  /** Why it is broken, or stays to be wiped. */
  reason: string | null
  /** Grows whenever it is to become something else. */
  turn: number
  /** Whose machine it is, or was until it is wiped. */
  amphoraId: string | null
  /** The amphora's ports, by their ids. */
  plugged: z.output<typeof pluggedSchema>
  /** The controllers' addresses that it was last told; null: those of its enrolment. */
  toldControllers: readonly string[] | null
  /** Seconds since its last heartbeat as a free host; null before the first. */
  silentSeconds: number | null
}

type HostRow = Omit<EnrolledHost, 'interfaces' | 'plugged' | 'toldControllers'> &
  Record<'interfaces' | 'plugged' | 'toldControllers', unknown>

const COLUMNS = sql`id, name, login, address, port, host_key AS "hostKey", zone, physical_host AS "physicalHost",
  controller_address AS "controllerAddress", interfaces, state, reason, turn::float8 AS turn, amphora_id AS "amphoraId", plugged,
  told_controllers AS "toldControllers",
  extract(epoch FROM now() - last_seen)::float8 AS "silentSeconds"`

const hostOf = ({ interfaces, plugged, toldControllers, ...row }: HostRow): EnrolledHost => ({
  ...row,
  interfaces: interfacesSchema.parse(interfaces),
  plugged: pluggedSchema.parse(plugged),
  toldControllers: toldSchema.parse(toldControllers),
})

/** A free host that has not been heard for this time is probably off. */
const HEARD_SECONDS = 15

export async function enrolledHosts(database: Database): Promise<EnrolledHost[]> {
  return (await many(database, sql<HostRow>`SELECT ${COLUMNS} FROM enrolled_host ORDER BY name`)).map(hostOf)
}

/** The host that is the machine of an amphora. */
export async function hostOfAmphora(database: Database, amphoraId: string): Promise<EnrolledHost | null> {
  const row = await maybeOne(
    database,
    sql<HostRow>`SELECT ${COLUMNS} FROM enrolled_host WHERE amphora_id = ${amphoraId} AND state = 'in use'`,
  )
  return row === undefined ? null : hostOf(row)
}

export async function hostById(database: Database, id: string): Promise<EnrolledHost | null> {
  const row = await maybeOne(database, sql<HostRow>`SELECT ${COLUMNS} FROM enrolled_host WHERE id = ${id}`)
  return row === undefined ? null : hostOf(row)
}

/** Where agents are reached, and with which pin: by the id of a host, or of the amphora that it carries. */
export async function sshAccess(
  database: Database,
  id: string,
): Promise<Pick<EnrolledHost, 'address' | 'port' | 'hostKey'> | null> {
  const row = await maybeOne(
    database,
    sql<Pick<EnrolledHost, 'address' | 'port' | 'hostKey'>>`
      SELECT address, port, host_key AS "hostKey" FROM enrolled_host
       WHERE id = ${id} OR (amphora_id = ${id} AND state = 'in use')`,
  )
  return row ?? null
}

export type NewHost = Pick<
  EnrolledHost,
  | 'id'
  | 'name'
  | 'login'
  | 'address'
  | 'port'
  | 'hostKey'
  | 'zone'
  | 'physicalHost'
  | 'controllerAddress'
  | 'interfaces'
>

/**
 * Stores that a host is being enrolled. An enrolment that was interrupted keeps its id.
 * @returns false if the host is enrolled already
 */
export async function beginEnrolment(database: Database, host: NewHost): Promise<boolean> {
  const columns = {
    name: host.name,
    login: host.login,
    address: host.address,
    port: host.port,
    host_key: host.hostKey,
    zone: host.zone,
    physical_host: host.physicalHost,
    controller_address: host.controllerAddress,
    interfaces: json(host.interfaces),
    state: 'enrolling',
  }
  const stored = await execute(
    database,
    sql`INSERT INTO enrolled_host ${prepared(insertion([{ id: host.id, ...columns }]))}
        ON CONFLICT (id) DO UPDATE SET ${prepared(assignments(columns))} WHERE enrolled_host.state = 'enrolling'`,
  )
  return stored === 1
}

/**
 * Takes a free host for an amphora: in the zone, with an interface on each of the networks, and heard lately. Prefers one
 * apart from the hosts of other amphorae, and then from their zones.
 * @param apart ids of those amphorae
 * @returns null if there is none
 */
export async function takeHost(
  database: Database,
  amphoraId: string,
  { zone, apart, networks }: { zone: string | null; apart: readonly string[]; networks: readonly string[] },
): Promise<EnrolledHost | null> {
  const row = await maybeOne(
    database,
    sql<HostRow>`
      WITH others AS (SELECT physical_host, zone FROM enrolled_host WHERE amphora_id = ANY(${apart}::uuid[]) AND state = 'in use'),
           chosen AS (
             SELECT h.id FROM enrolled_host h
              WHERE h.state = 'free' AND (${zone}::text IS NULL OR h.zone = ${zone})
                AND h.last_seen > now() - ${HEARD_SECONDS} * interval '1 second'
                AND ${networks}::text[] <@ ARRAY(SELECT i ->> 'networkId' FROM jsonb_array_elements(h.interfaces) i)
              ORDER BY h.physical_host IN (SELECT physical_host FROM others), h.zone IN (SELECT zone FROM others), h.state_at
              LIMIT 1 FOR UPDATE SKIP LOCKED)
      UPDATE enrolled_host SET state = 'in use', amphora_id = ${amphoraId}, plugged = '{}', turn = turn + 1, state_at = now(), reason = NULL
       WHERE id = (SELECT id FROM chosen) RETURNING ${COLUMNS}`,
  )
  return row === undefined ? null : hostOf(row)
}

/** The host of an amphora is to be wiped. @returns null if there is none */
export async function giveUpHost(database: Database, amphoraId: string): Promise<EnrolledHost | null> {
  const row = await maybeOne(
    database,
    sql<HostRow>`
      UPDATE enrolled_host SET state = 'wiping', plugged = '{}', turn = turn + 1, state_at = now(), reason = NULL
       WHERE amphora_id = ${amphoraId} AND state = 'in use' RETURNING ${COLUMNS}`,
  )
  return row === undefined ? null : hostOf(row)
}

/** Hosts that are still to be wiped. */
export async function hostsToWipe(database: Database): Promise<EnrolledHost[]> {
  return (await many(database, sql<HostRow>`SELECT ${COLUMNS} FROM enrolled_host WHERE state = 'wiping'`)).map(hostOf)
}

/** Ends a state of a host, if it still has it in the same turn. @returns whether it had */
export async function leaveState(
  database: Database,
  { id, turn, state }: Pick<EnrolledHost, 'id' | 'turn' | 'state'>,
  next: { state: HostState; reason?: string | null; changes?: readonly string[] },
): Promise<boolean> {
  const columns: Record<string, Bound> = {
    state: next.state,
    reason: next.reason ?? null,
    ...(next.state === 'free' && { amphora_id: null }),
    ...(next.changes === undefined ? {} : { changes: json(next.changes) }),
  }
  const changed = await execute(
    database,
    sql`UPDATE enrolled_host SET ${prepared(assignments({ ...columns, state_at: sql`now()` }))}
         WHERE id = ${id} AND turn = ${turn} AND state = ${state}`,
  )
  return changed === 1
}

/** Lets a host begin its next turn after one that the database does not know. @returns false if it has changed meanwhile */
export async function raiseTurn(
  database: Database,
  { id, turn, state }: Pick<EnrolledHost, 'id' | 'turn' | 'state'>,
  next: number,
): Promise<boolean> {
  const raised = await execute(
    database,
    sql`UPDATE enrolled_host SET turn = ${next} WHERE id = ${id} AND turn = ${turn} AND state = ${state}`,
  )
  return raised === 1
}

/** Records why a host stays in its state, for people. @returns whether that is news */
export async function recordReason(
  database: Database,
  { id, turn, state }: Pick<EnrolledHost, 'id' | 'turn' | 'state'>,
  reason: string,
): Promise<boolean> {
  const changed = await execute(
    database,
    sql`UPDATE enrolled_host SET reason = ${reason}
         WHERE id = ${id} AND turn = ${turn} AND state = ${state} AND reason IS DISTINCT FROM ${reason}`,
  )
  return changed === 1
}

/** Records what a port is on the host of an amphora; null forgets the port. @returns false if it has no host */
export async function recordPlugged(
  database: Database,
  amphoraId: string,
  portId: string,
  plugged: EnrolledHost['plugged'][string] | null,
): Promise<boolean> {
  const changed =
    plugged === null
      ? sql`plugged - ${portId}::text`
      : sql`plugged || jsonb_build_object(${portId}::text, ${json(plugged)}::jsonb)`
  const updated = await execute(
    database,
    sql`UPDATE enrolled_host SET plugged = ${changed} WHERE amphora_id = ${amphoraId} AND state = 'in use'`,
  )
  return updated === 1
}

/** Records that a host may know nothing but what its enrolment says. */
export async function forgetTold(database: Database, id: string): Promise<void> {
  await execute(database, sql`UPDATE enrolled_host SET told_controllers = NULL WHERE id = ${id}`)
}

/**
 * Records what a host was told. If another controller host has recorded something meanwhile, nobody knows which of the two
 * the host heard last, and it is told again.
 * @param host as it was before it was told
 */
export async function recordTold(
  database: Database,
  { id, toldControllers }: EnrolledHost,
  controllers: readonly string[],
): Promise<void> {
  const former = toldControllers === null ? null : json(toldControllers)
  await execute(
    database,
    sql`UPDATE enrolled_host
           SET told_controllers = CASE WHEN told_controllers IS NOT DISTINCT FROM ${former}::jsonb THEN ${json(controllers)}::jsonb END
         WHERE id = ${id}`,
  )
}

/** Takes a host out of use, so that no amphora gets it. @returns whether it carries none */
export async function beginRetirement(database: Database, id: string): Promise<boolean> {
  const retiring = await execute(
    database,
    sql`UPDATE enrolled_host SET state = 'retiring', state_at = now(), turn = turn + 1
         WHERE id = ${id} AND state <> 'in use'`,
  )
  return retiring === 1
}

export async function forgetHost(database: Database, id: string): Promise<void> {
  await execute(database, sql`DELETE FROM enrolled_host WHERE id = ${id}`)
}
