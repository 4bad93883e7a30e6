import type { Context } from 'koa'
import { isId, missing } from '../ids.js'
import type { Service } from '../routes.js'
import { backendOf, createCaBackends } from './backends.js'

const SECONDS_KEPT = 300

/** GET of a revocation list as certificates point to it: DER, without a token, for whoever checks a certificate. */
export function publicRevocationList(service: Service): (ctx: Context) => Promise<void> {
  const backends = createCaBackends(service)
  return async ctx => {
    const id = String(ctx.params.id).replace(/\.crl$/, '')
    const authority = isId(id)
      ? await service.database('certificate_authority').where({ id }).first('plugin_name')
      : undefined
    const crl = authority === undefined ? null : await backendOf(backends, authority.plugin_name).revocationList(id)
    if (crl === null) throw missing('Revocation list')
    ctx.body = crl
    ctx.type = 'application/pkix-crl'
    ctx.set('Cache-Control', `public, max-age=${SECONDS_KEPT}`)
  }
}
