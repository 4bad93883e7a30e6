import type { Mismatch } from '../../../amphora-agent/protocol/repairs.js'
import type { Database } from '../../database/connection.js'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { OperatingStatus } from '../../load-balancer/schema/status.js'
import type { LoadBalancerTree } from '../../load-balancer/tree/tree.js'
import { writeStatuses } from './write-statuses.js'

/**
 * Lowers a load balancer's operating status because of its amphorae, whatever the status of its listeners and
 * pools.
 */
export type Impairment = 'ERROR' | 'DEGRADED'

/** State of one amphora of a load balancer, from its heartbeats. */
export type AmphoraHealth = { heard: boolean; holdsVip: boolean; mismatches: readonly Mismatch[] }

/** With one of these mismatches, an amphora cannot serve. */
const VITAL: ReadonlySet<Mismatch> = new Set(['interface', 'address', 'haproxy'])

/**
 * ERROR if all amphorae are heard, none of them holds the VIP and can serve, and one reports a mismatch. DEGRADED
 * if one reports a mismatch, or if a pair has no second amphora to take over. A silent amphora is no evidence: it
 * may serve, but its silence improves nothing.
 * @param before the previous impairment
 */
export function impairmentOf(
  topology: LoadBalancerTree['topology'],
  amphorae: readonly AmphoraHealth[],
  before: Impairment | null,
): Impairment | null {
  const heard = amphorae.filter(amphora => amphora.heard)
  const hasMismatch = heard.some(({ mismatches }) => mismatches.length > 0)
  const serves = heard.some(({ holdsVip, mismatches }) => holdsVip && !mismatches.some(what => VITAL.has(what)))
  const lacksSecond = topology === 'ACTIVE_STANDBY' && heard.length === 1
  const reported = hasMismatch || lacksSecond ? 'DEGRADED' : null
  if (serves) return reported
  if (heard.length === amphorae.length) return hasMismatch ? 'ERROR' : reported
  return before === 'ERROR' ? before : (reported ?? before)
}

/** The worse of the reported status and the impairment. A disabled load balancer stays OFFLINE. */
export function worseOf(reported: OperatingStatus, impairment: Impairment | null): OperatingStatus {
  if (impairment === null || reported === 'OFFLINE' || reported === 'ERROR') return reported
  return impairment
}

/** Why amphorae lower the operating status. */
export function impairmentReason(amphorae: readonly AmphoraHealth[]): string {
  const mismatches = new Set(amphorae.flatMap(({ heard, mismatches }) => (heard ? mismatches : [])))
  if (mismatches.size > 0) return `An amphora cannot restore its ${[...mismatches].join(', ')}`
  return 'Only one amphora is heard: no other could take over'
}

type Row = {
  id: string
  topology: LoadBalancerTree['topology']
  impairment: Impairment | null
  impairmentReason: string | null
  /** Since when none of its amphorae has been heard, as stored and now: texts of times. */
  unheardSince: string | null
  lastHeard: string | null
  reportedStatus: OperatingStatus
  amphorae: AmphoraHealth[]
}

/** Updates impairments and operating statuses: one read, and one write if something changed. */
export async function recordImpairments(database: Database, staleAfterSeconds: number): Promise<void> {
  const isSilent = sql`(h.last_seen > now() - ${staleAfterSeconds} * interval '1 second') IS NOT TRUE`
  const rows = await many(
    database,
    sql<Row>`
     SELECT lb.id, lb.topology, lb.impairment, lb.impairment_reason AS "impairmentReason", lb.unheard_since::text AS "unheardSince",
            CASE WHEN bool_and(${isSilent}) THEN max(h.last_seen)::text END AS "lastHeard", lb.reported_status AS "reportedStatus",
            jsonb_agg(jsonb_build_object('heard', NOT ${isSilent},
              'holdsVip', coalesce(h.vrrp_master, false), 'mismatches', to_jsonb(coalesce(h.mismatches, '{}')))) AS amphorae
       FROM load_balancer lb
       JOIN amphora a ON a.load_balancer_id = lb.id AND a.status = 'ALLOCATED' AND a.applied_sha256 IS NOT NULL
       LEFT JOIN amphora_health h ON h.amphora_id = a.id
      WHERE lb.admin_state_up
      GROUP BY lb.id
     HAVING lb.impairment IS NOT NULL OR lb.unheard_since IS NOT NULL OR (bool_and(${isSilent}) AND max(h.last_seen) IS NOT NULL) OR lb.topology = 'ACTIVE_STANDBY' OR bool_or(h.mismatches <> '{}')`,
  )
  const changed = rows.flatMap(row => {
    const impairment = impairmentOf(row.topology, row.amphorae, row.impairment)
    // A silent amphora says nothing new about an impairment that stays.
    const isKept = impairment === row.impairment && row.amphorae.every(({ heard }) => !heard)
    const reason = impairment === null ? null : isKept ? row.impairmentReason : impairmentReason(row.amphorae)
    const isSame =
      impairment === row.impairment && reason === row.impairmentReason && row.lastHeard === row.unheardSince
    const status = worseOf(row.reportedStatus, impairment)
    return isSame ? [] : [{ id: row.id, status, reason, impairment, unheard: row.lastHeard }]
  })
  await writeStatuses(database, 'load_balancer', changed, {
    reasonColumn: 'impairment_reason',
    more: sql`, impairment = v.impairment, unheard_since = v.unheard`,
    where: sql` AND t.admin_state_up`,
  })
}
