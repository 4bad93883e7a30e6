import type { Mismatch } from '../../amphora-agent/protocol/repairs.js'
import type { Database } from '../database/connection.js'
import { execute, many } from '../database/query.js'
import { json, sql } from '../database/sql.js'
import type { OperatingStatus } from '../load-balancer/schema/status.js'
import type { LoadBalancerTree } from '../load-balancer/tree/tree.js'

/** What amphorae themselves lack lowers the operating status of their load balancer, whatever its listeners and pools say. */
export type Impairment = 'ERROR' | 'DEGRADED'

/** One amphora of a load balancer, as its heartbeats tell. */
export type Carrier = { heard: boolean; holdsVip: boolean; mismatches: readonly Mismatch[] }

/** Without these an amphora serves nobody. */
const VITAL: ReadonlySet<Mismatch> = new Set(['interface', 'address', 'haproxy'])

/**
 * ERROR when all are heard, none has the VIP and can serve it, and one says why; DEGRADED when something is amiss, or when a pair has no second amphora that
 * could take over. One that is not heard says nothing: it may well serve, but nothing gets better by its silence.
 * @param before what it was so far
 */
export function impairmentOf(
  topology: LoadBalancerTree['topology'],
  carriers: readonly Carrier[],
  before: Impairment | null,
): Impairment | null {
  const heard = carriers.filter(carrier => carrier.heard)
  const isAmiss = heard.some(({ mismatches }) => mismatches.length > 0)
  const serves = heard.some(({ holdsVip, mismatches }) => holdsVip && !mismatches.some(what => VITAL.has(what)))
  const lacksSecond = topology === 'ACTIVE_STANDBY' && heard.length === 1
  const told = isAmiss || lacksSecond ? 'DEGRADED' : null
  if (serves) return told
  if (heard.length === carriers.length) return isAmiss ? 'ERROR' : told
  return before === 'ERROR' ? before : (told ?? before)
}

/** What is shown: the worse of what was reported of listeners and pools and of the impairment. One that is disabled stays OFFLINE. */
export function worseOf(reported: OperatingStatus, impairment: Impairment | null): OperatingStatus {
  if (impairment === null || reported === 'OFFLINE' || reported === 'ERROR') return reported
  return impairment
}

type Row = {
  id: string
  topology: LoadBalancerTree['topology']
  impairment: Impairment | null
  reportedStatus: OperatingStatus
  carriers: Carrier[]
}

/** Brings the operating statuses in line with what the amphorae lack: one read, and one write when something changed. */
export async function recordImpairments(database: Database, staleAfterSeconds: number): Promise<void> {
  const rows = await many(
    database,
    sql<Row>`
     SELECT lb.id, lb.topology, lb.impairment, lb.reported_status AS "reportedStatus",
            jsonb_agg(jsonb_build_object('heard', coalesce(h.last_seen > now() - ${staleAfterSeconds} * interval '1 second', false),
              'holdsVip', coalesce(h.vrrp_master, false), 'mismatches', to_jsonb(coalesce(h.mismatches, '{}')))) AS carriers
       FROM load_balancer lb
       JOIN amphora a ON a.load_balancer_id = lb.id AND a.status = 'ALLOCATED' AND a.applied_sha256 IS NOT NULL
       LEFT JOIN amphora_health h ON h.amphora_id = a.id
      WHERE lb.admin_state_up
      GROUP BY lb.id
     HAVING lb.impairment IS NOT NULL OR lb.topology = 'ACTIVE_STANDBY' OR bool_or(h.mismatches <> '{}')`,
  )
  const changed = rows.flatMap(({ id, topology, impairment, reportedStatus, carriers }) => {
    const now = impairmentOf(topology, carriers, impairment)
    return now === impairment ? [] : [{ id, impairment: now, status: worseOf(reportedStatus, now) }]
  })
  if (changed.length === 0) return
  await execute(
    database,
    sql`
     UPDATE load_balancer lb SET impairment = v.impairment, operating_status = v.status
       FROM jsonb_to_recordset(${json(changed)}::jsonb) AS v(id uuid, impairment text, status text)
      WHERE lb.id = v.id AND lb.admin_state_up`,
  )
}
