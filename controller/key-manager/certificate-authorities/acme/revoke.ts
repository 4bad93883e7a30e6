import { X509Certificate } from 'node:crypto'
import { REVOCATION_REASONS, type RevocationReason } from '../../../../x509/revocation-list.js'
import { execute, maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { RevokeOutcome } from '../ca-backend.js'
import { openAccount } from './account.js'
import { AcmeProblem } from './client/problem.js'
import type { AcmeParts } from './issue.js'

const TIME_LIMIT_MS = 60_000

/**
 * Revokes a certificate that is in a container, or was until its last renewal: others are not known here.
 * @throws AcmeProblem, Unreachable, AccountRefused
 */
export async function revokeByAcme(
  { service, client, directoryUrl }: AcmeParts,
  caId: string,
  serial: string,
  reason: RevocationReason,
): Promise<RevokeOutcome> {
  const { database } = service
  const found = await maybeOne(
    database,
    sql<{ pem: string }>`
      SELECT pem FROM certificate WHERE ca_id = ${caId} AND serial = ${serial} AND pem IS NOT NULL
      UNION ALL SELECT pem FROM certificate_version WHERE ca_id = ${caId} AND serial = ${serial} AND pem IS NOT NULL LIMIT 1`,
  )
  if (found === undefined) return 'unknown'
  const signal = AbortSignal.timeout(TIME_LIMIT_MS)
  const account = await openAccount(service, client, directoryUrl, signal)
  const { revokeCert } = await client.directory(signal)
  if (revokeCert === undefined) throw new AcmeProblem('', 'The CA revokes no certificates by ACME.', 0, null)
  const certificate = new X509Certificate(found.pem).raw.toString('base64url')
  try {
    await client.postForText(account, revokeCert, { certificate, reason: REVOCATION_REASONS[reason] }, signal)
  } catch (error) {
    if (error instanceof AcmeProblem && error.kind === 'alreadyRevoked') return 'already revoked'
    throw error
  }
  await execute(
    database,
    sql`UPDATE issued_certificate SET revoked_at = clock_timestamp(), revocation_reason = ${reason}
         WHERE ca_id = ${caId} AND serial = ${serial} AND revoked_at IS NULL`,
  )
  return 'revoked'
}
