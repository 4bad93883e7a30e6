import type { Database } from '../../../database/connection.js'
import { many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { OperatorError } from '../../operator-error.js'

/** An amphora in the database. */
export type AmphoraRow = {
  id: string
  status: string
  role: string | null
  loadBalancerId: string | null
  loadBalancerName: string | null
  /** Its address on the management network. */
  address: string | null
  vrrpIp: string | null
  appliedGeneration: number
  desiredGeneration: number | null
  createdAt: Date
  /** Seconds since its last heartbeat; null before the first one. */
  silentFor: number | null
  vrrpMaster: boolean | null
  haproxyRunning: boolean | null
  /** Null for one that an earlier version made. */
  driver: string | null
  /** The controller host that it belongs to; null if it belongs to none. */
  hostId: string | null
  flavor: string | null
  zone: string | null
  imageTag: string | null
  /** SHA-256 of the image's disk. */
  imageId: string | null
  /** Null until it has been heard. */
  agentVersion: string | null
  /** SHA-256 of the agent; null for one that cannot be upgraded in place. */
  agentBundle: string | null
}

export async function amphoraRows(database: Database): Promise<AmphoraRow[]> {
  return many(
    database,
    sql<AmphoraRow>`
    SELECT amphora.id, amphora.status, amphora.role, amphora.load_balancer_id AS "loadBalancerId", load_balancer.name AS "loadBalancerName",
           amphora.lb_network_ip AS address, amphora.vrrp_ip AS "vrrpIp", amphora.applied_generation AS "appliedGeneration",
           load_balancer.generation AS "desiredGeneration", amphora.created_at AS "createdAt",
           extract(epoch FROM now() - health.last_seen)::float8 AS "silentFor", health.vrrp_master AS "vrrpMaster",
           health.haproxy_running AS "haproxyRunning", amphora.compute_driver AS driver, amphora.host_id AS "hostId", amphora.compute_flavor AS flavor,
           amphora.cached_zone AS zone, amphora.image_tag AS "imageTag", amphora.image_id AS "imageId",
           amphora.agent_version AS "agentVersion", amphora.agent_bundle AS "agentBundle"
      FROM amphora
      LEFT JOIN load_balancer ON load_balancer.id = amphora.load_balancer_id
      LEFT JOIN amphora_health health ON health.amphora_id = amphora.id
     ORDER BY amphora.created_at, amphora.id`,
  )
}

/** The amphora whose id begins with `prefix`. @throws OperatorError when no amphora matches, or more than one */
export async function amphoraRow(database: Database, prefix: string): Promise<AmphoraRow> {
  const found = (await amphoraRows(database)).filter(({ id }) => id.startsWith(prefix.toLowerCase()))
  const [row] = found
  if (row === undefined) throw new OperatorError(`There is no amphora ${prefix}. \`krater amphora list\` lists all.`)
  if (found.length > 1)
    throw new OperatorError(`${prefix} matches ${found.length} amphorae: ${found.map(({ id }) => id).join(', ')}`)
  return row
}

/** `3 s ago`, or `never`. */
export function lastHeartbeat({ silentFor }: AmphoraRow): string {
  return silentFor === null ? 'never' : `${Math.max(0, Math.round(silentFor))} s ago`
}

/** The tag of the image that it runs; `host` if it runs its host's programs. */
export const imageText = ({ imageTag, imageId, address }: AmphoraRow): string =>
  imageTag ?? (imageId === null && address !== null ? 'host' : '-')

/** Whether its agent is the one of this version. @param bundle SHA-256 of that one */
export function agentText({ agentVersion, agentBundle }: AmphoraRow, bundle: string): string {
  if (agentVersion === null) return '-'
  if (agentBundle === null) return 'too old'
  return agentBundle === bundle ? 'current' : agentBundle.slice(0, 8)
}
