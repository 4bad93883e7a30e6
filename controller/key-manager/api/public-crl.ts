import type { Answer } from '../../api/answer.js'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { findBackend } from '../certificate-authorities/backends.js'
import { CRL_ROUTE } from '../certificate-authorities/crl-url.js'
import { isId, missing } from '../ids.js'
import { type ApiService, openRoute } from './dialect.js'

const SECONDS_KEPT = 300

/**
 * GET of a revocation list as certificates point to it: DER, without a token, for whoever checks a certificate.
 *
 * A CA that was deleted has none, and the answer is 404: its key went with it, so nobody can sign another one. That is enough, for its own
 * certificate is on the list of the CA above until it ends. Whoever has fetched a list of the deleted CA goes on with it until its nextUpdate,
 * and whoever checks the chain is told that the CA is revoked, rather than that a list is missing; nothing below can be good again.
 */
export const publicRevocationList = openRoute({
  method: 'GET',
  path: CRL_ROUTE,
  group: 'revocation lists',
  summary: 'Read a revocation list, as certificates point to it',
  status: 200,
  answer: { type: 'string' },
  answerType: 'application/pkix-crl',
  handle: (service, call) => sendPublicList(service, call.params.id ?? ''),
})

async function sendPublicList({ database, caBackends }: ApiService, name: string): Promise<Answer> {
  const id = name.replace(/\.crl$/, '')
  const authority = isId(id)
    ? await maybeOne(
        database,
        sql<{ pluginName: string }>`SELECT plugin_name AS "pluginName" FROM certificate_authority WHERE id = ${id}`,
      )
    : undefined
  const crl = authority === undefined ? null : await findBackend(caBackends, authority.pluginName).revocationList(id)
  if (crl === null) throw missing('Revocation list')
  return {
    status: 200,
    bytes: crl,
    headers: { 'Content-Type': 'application/pkix-crl', 'Cache-Control': `public, max-age=${SECONDS_KEPT}` },
  }
}
