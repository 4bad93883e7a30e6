import type { Context } from 'koa'
import type { Call as KernelCall } from '../../api/call.js'
import type { Dialect } from '../../api/dialect.js'
import { routesFor } from '../../api/route.js'
import { readJson } from '../../http/body.js'
import { ApiError } from '../../http/errors.js'
import { createPublicBase } from '../../http/public-base.js'
import { createClientAddress, sourceOf } from '../../http/trusted-proxies.js'
import type { Turns } from '../../http/turns.js'
import type { Place } from '../../process/fair-queue.js'
import type { Actor } from '../audit/record.js'
import type { CaBackend } from '../certificate-authorities/ca-backend.js'
import type { CertificateAuthoritySettings } from '../certificate-authorities/internal/options.js'
import { CryptoUnavailable } from '../crypto/backend.js'
import type { Service, ServiceSettings } from '../service.js'
import { authenticate, type Requester } from './authenticate.js'
import type { AcmeServerSettings } from './options.js'
import { malformed, PROBLEM_TYPE, presentProblem } from './problem.js'
import type { Nonces } from './signatures/nonces.js'

export const ACME_PREFIX = '/acme/'

/** Longer than an order of 100 names, and than a request for a certificate of 32 KiB encoded twice. */
const MAX_BODY_BYTES = 65_536

export type AcmeSettings = ServiceSettings & {
  public_url?: string | undefined
  trusted_proxies: readonly string[]
  acme_server: AcmeServerSettings
  certificate_authority: CertificateAuthoritySettings
}

/** What the handlers of the ACME server work with. */
export type AcmeService = Service & { config: AcmeSettings; caBackends: readonly CaBackend[]; nonces: Nonces }

/** One request that a key has signed. */
export type Call = KernelCall<Requester>

/** Which key may sign: the account's only, a key in the request only, or either. */
export type Signer = 'account' | 'new key' | 'either'

export const { route, openRoute } = routesFor<AcmeService, Requester, Signer>()

export type AcmeDialectOptions = AcmeService & { turns: Turns }

/** The dialect of the ACME server (RFC 8555): requests are signed, and errors are problem documents. */
export function acmeDialect(options: AcmeDialectOptions): Dialect<AcmeService, Requester, Signer> {
  const { config, nonces, turns } = options
  const { public_url: publicUrl, trusted_proxies: trustedProxies } = config
  const addressOf = createClientAddress(trustedProxies)
  const baseOf = createPublicBase({ publicUrl, trustedProxies })
  const placeOfSource = (ctx: Context): Place => [`source ${sourceOf(addressOf(ctx))}`, '']
  return {
    name: 'acme-server',
    trustedProxies,
    publicUrl,
    caseSensitive: true,
    headIsGet: true,
    body: { maxBytes: MAX_BODY_BYTES },
    authenticate: async (ctx, path) => {
      ctx.set('Replay-Nonce', await nonces.issue())
      requireJose(ctx)
      const body = await readJson(ctx, MAX_BODY_BYTES, { anyType: true })
      const url = `${baseOf(ctx, '')}${path}${ctx.querystring === '' ? '' : `?${ctx.querystring}`}`
      // Who asks is not known yet: until then, requests of one source wait together.
      return turns.take(placeOfSource(ctx), () => authenticate(options, { body, url }))
    },
    hidesPath: () => false,
    placeOf: (caller, ctx) => {
      if (caller === null) return placeOfSource(ctx)
      return caller.account === null ? placeOfSource(ctx) : [`project ${caller.account.projectId}`, caller.account.id]
    },
    admit: ctx => {
      ctx.set('Cache-Control', 'no-store')
      ctx.set('Link', `<${baseOf(ctx, '')}${ACME_PREFIX}directory>;rel="index"`)
    },
    authorise: (_service, call, signer) => requireSigner(call.caller, signer),
    validate: (schema, value) => {
      const parsed = schema.safeParse(value)
      if (parsed.success) return parsed.data
      const [issue] = parsed.error.issues
      throw malformed(`The payload is not valid at "${issue?.path.join('.') ?? ''}": ${issue?.message ?? 'unknown'}.`)
    },
    translate: error =>
      error instanceof CryptoUnavailable
        ? new ApiError(503, 'The crypto back end is unavailable; try again later.', error.headers)
        : error,
    faultType: PROBLEM_TYPE,
    presentFault: presentProblem,
  }
}

/** @throws AcmeProblem malformed */
function requireSigner({ account }: Requester, signer: Signer): void {
  if (signer === 'account' && account === null) throw malformed('This request must name the account in kid.')
  if (signer === 'new key' && account !== null) throw malformed('This request must bring its key in jwk.')
}

/** @throws ApiError 415 */
function requireJose(ctx: Context): void {
  if (ctx.request.type === 'application/jose+json') return
  throw new ApiError(415, 'The Content-Type of a request must be application/jose+json.')
}

/** Who acts, for audit records: the user for whom the account's binding key was made. */
export const actorIn = ({ caller, requestId, address }: Call): Actor => ({
  userId: caller.account?.creatorId ?? null,
  projectId: caller.account?.projectId ?? null,
  requestId,
  remoteAddress: address,
})
