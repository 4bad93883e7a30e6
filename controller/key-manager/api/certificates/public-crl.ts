import type { Answer } from '../../../api/answer.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { findBackend } from '../../certificate-authorities/backends.js'
import { CRL_ROUTE } from '../../certificate-authorities/crl-url.js'
import { isId, missing } from '../../ids.js'
import { type ApiService, openRoute } from '../dialect.js'

const CACHE_SECONDS = 300

/**
 * GET of a revocation list at the URL in certificates: DER, without a token, for anyone who checks a certificate.
 *
 * A deleted CA has no list, and the answer is 404: its key was deleted, so nobody can sign another list. That is
 * sufficient, as the parent's list has the CA's own certificate until that expires. Clients use a fetched list of
 * the deleted CA until its nextUpdate, and clients that check the chain see that the CA is revoked. Nothing below
 * it can become valid again.
 */
export const publicRevocationList = openRoute({
  method: 'GET',
  path: CRL_ROUTE,
  group: 'revocation lists',
  summary: 'Read a revocation list at the URL in certificates',
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
    headers: { 'Content-Type': 'application/pkix-crl', 'Cache-Control': `public, max-age=${CACHE_SECONDS}` },
  }
}
