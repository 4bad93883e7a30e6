import type { Database } from '../../../database/connection.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { CaBackend } from '../../certificate-authorities/ca-backend.js'
import type { CertificateState } from '../plan.js'
import type { ClaimedCertificate } from './read-certificate.js'

/** The state of a certificate with its CA's advice when to renew, and when to ask for it again. */
export async function withRenewalInfo(
  { database, backends, now = Date.now }: { database: Database; backends: readonly CaBackend[]; now?: () => number },
  { caId, pem, state }: ClaimedCertificate,
  signal: AbortSignal,
): Promise<CertificateState> {
  const authority = await maybeOne(
    database,
    sql<{ pluginName: string }>`SELECT plugin_name AS "pluginName" FROM certificate_authority WHERE id = ${caId}`,
  )
  const backend = backends.find(({ name }) => name === authority?.pluginName)
  const info = pem === null ? null : ((await backend?.renewalInfo?.(pem, signal)) ?? null)
  if (info === null) return { ...state, window: null, infoAt: null }
  // Without an answer, the last advice holds.
  return { ...state, window: info.window ?? state.window, infoAt: now() + info.againSeconds * 1000 }
}
