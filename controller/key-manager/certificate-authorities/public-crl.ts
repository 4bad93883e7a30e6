import type { Context } from 'koa'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { isId, missing } from '../ids.js'
import type { Service } from '../routes.js'
import { backendOf, createCaBackends } from './backends.js'

const SECONDS_KEPT = 300

/**
 * GET of a revocation list as certificates point to it: DER, without a token, for whoever checks a certificate.
 *
 * A CA that was deleted has none, and the answer is 404: its key went with it, so nobody can sign another one. That is enough, for its own
 * certificate is on the list of the CA above until it ends. Whoever has fetched a list of the deleted CA goes on with it until its nextUpdate,
 * and whoever checks the chain is told that the CA is revoked, rather than that a list is missing; nothing below can be good again.
 */
export function publicRevocationList(service: Service): (ctx: Context) => Promise<void> {
  const backends = createCaBackends(service)
  return async ctx => {
    const id = String(ctx.params.id).replace(/\.crl$/, '')
    const authority = isId(id)
      ? await maybeOne(
          service.database,
          sql<{ pluginName: string }>`SELECT plugin_name AS "pluginName" FROM certificate_authority WHERE id = ${id}`,
        )
      : undefined
    const crl = authority === undefined ? null : await backendOf(backends, authority.pluginName).revocationList(id)
    if (crl === null) throw missing('Revocation list')
    ctx.body = crl
    ctx.type = 'application/pkix-crl'
    ctx.set('Cache-Control', `public, max-age=${SECONDS_KEPT}`)
  }
}
