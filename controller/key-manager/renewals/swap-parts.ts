import { execute, maybeOne } from '../../database/query.js'
import { type Fragment, json, sql } from '../../database/sql.js'
import type { Transaction } from '../../database/transaction.js'
import { CERTIFICATE_CHANNEL } from '../certificate-authorities/issue/certificate-row.js'
import { type EventKind, eventCtes } from './events.js'

/** What is known about the certificate in a container. */
export type CertificateFacts = {
  caId: string
  serial: string
  issuer: string
  names: readonly string[]
  pem: string | null
  notBefore: Date
  notAfter: Date
}

export type Part = { name: string; secretId: string }

/** Notified of every replacement of a container's parts. The payload is the container's id and its new version. */
const CONTAINER_CHANNEL = 'krater_container'

/** A certificate and its live container, locked until the end of the transaction; null if there is none. */
export async function lockCertificate(
  trx: Transaction,
  id: string,
  condition: Fragment,
): Promise<{ version: number } | null> {
  const locked = await maybeOne(
    trx,
    sql<{ version: number }>`
      SELECT c.version FROM container c JOIN certificate t ON t.id = c.id
       WHERE c.id = ${id} AND c.deleted_at IS NULL AND ${condition} FOR UPDATE OF c, t`,
  )
  return locked ?? null
}

/**
 * Replaces the parts of a locked container. The present parts become its former version, which a rollback can bring
 * back; parts of the version before that are destroyed, unless something else uses them. The certificate is due at once,
 * to be planned anew.
 * @returns the new version
 */
export async function swapParts(
  trx: Transaction,
  id: string,
  { facts, parts }: { facts: CertificateFacts; parts: readonly Part[] },
  event: { kind: EventKind; message: string },
): Promise<number> {
  await keepPresentParts(
    trx,
    id,
    parts.map(({ secretId }) => secretId),
  )
  await execute(
    trx,
    sql`INSERT INTO container_secret (container_id, secret_id, name)
        SELECT ${id}::uuid, p.secret_id, p.name
          FROM unnest(${parts.map(({ secretId }) => secretId)}::uuid[], ${parts.map(({ name }) => name)}::text[])
               WITH ORDINALITY AS p (secret_id, name, position) ORDER BY p.position`,
  )
  const { caId, serial, issuer, names, pem, notBefore, notAfter } = facts
  const swapped = await maybeOne(
    trx,
    sql<{ version: number }>`
      WITH box AS (
        UPDATE container SET version = version + 1, updated_at = now() WHERE id = ${id} RETURNING version),
      -- Load balancers are told of the new certificate.
      unknown AS (
        UPDATE container_consumer SET material = '{}' WHERE container_id = ${id} AND load_balancer_id IS NOT NULL),
      swapped AS (
        UPDATE certificate t
           SET ca_id = ${caId}, serial = ${serial}, issuer = ${issuer}, names = ${names}, pem = ${pem},
               not_before = ${notBefore}, not_after = ${notAfter}, checked_at = clock_timestamp(), renew_at = NULL,
               asked_at = NULL, window_start = NULL, window_end = NULL, info_at = now(), attempts = 0, last_error = NULL,
               retry_at = NULL, hold_until = NULL, noticed_days = NULL, due_at = now(), lapsed_claims = 0, under_way = false,
               lease_owner = NULL, lease_until = NULL, fence = fence + 1
          FROM box WHERE t.id = ${id} RETURNING t.id, box.version, t.not_after),
      ${eventCtes(sql`swapped`, event.kind, event.message)}
      SELECT version, pg_notify(${CONTAINER_CHANNEL}, id || ' ' || version), pg_notify(${CERTIFICATE_CHANNEL}, id::text)
        FROM swapped`,
  )
  if (swapped === undefined) throw new Error('The locked certificate is gone.')
  return swapped.version
}

/** Makes the present parts the former version, and destroys what only older versions used. */
async function keepPresentParts(trx: Transaction, id: string, nextIds: readonly string[]): Promise<void> {
  const older = await maybeOne(
    trx,
    sql<{ ids: string[] }>`
      WITH gone AS (DELETE FROM certificate_version WHERE container_id = ${id} RETURNING parts)
      SELECT coalesce(array_agg(part->>'secret_id'), '{}') AS ids FROM gone, jsonb_array_elements(gone.parts) part`,
  )
  const kept = await maybeOne(
    trx,
    sql<{ ids: string[] }>`
      WITH present AS (DELETE FROM container_secret WHERE container_id = ${id} RETURNING secret_id, name),
      former AS (
        INSERT INTO certificate_version (container_id, version, ca_id, serial, issuer, names, pem, not_before, not_after, parts)
        SELECT t.id, c.version, t.ca_id, t.serial, t.issuer, t.names, t.pem, t.not_before, t.not_after,
               coalesce((SELECT jsonb_agg(jsonb_build_object('name', name, 'secret_id', secret_id)) FROM present), '[]')
          FROM certificate t JOIN container c ON c.id = t.id WHERE t.id = ${id})
      SELECT coalesce(array_agg(secret_id), '{}')::text[] AS ids FROM present`,
  )
  const used = new Set([...nextIds, ...(kept?.ids ?? [])])
  const unused = (older?.ids ?? []).filter(secretId => !used.has(secretId))
  if (unused.length > 0) await destroySecrets(trx, unused)
}

/** Removes the ciphertext of superseded secrets and leaves tombstones, unless a container or a consumer uses them. */
async function destroySecrets(trx: Transaction, ids: readonly string[]): Promise<void> {
  await execute(
    trx,
    sql`WITH gone AS (
       UPDATE secret s SET deleted_at = now(), ciphertext = NULL, project_key_id = NULL, metadata = '{}', acl_users = '{}'
        WHERE s.id = ANY (${ids}::uuid[]) AND s.deleted_at IS NULL
          AND NOT EXISTS (SELECT FROM container_secret r WHERE r.secret_id = s.id)
          AND NOT EXISTS (SELECT FROM secret_consumer u WHERE u.secret_id = s.id)
        RETURNING s.id, s.project_id)
     INSERT INTO key_manager_audit.audit_record (action, outcome, project_id, target_type, target_id, detail)
     SELECT 'secret.delete', 'success', project_id, 'secret', id, ${json({ superseded: true })}::jsonb FROM gone`,
  )
}
