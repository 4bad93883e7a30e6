import type { TLSSocket } from 'node:tls'
import type { Context } from 'koa'
import {
  TOKEN_PATH,
  type TokenAnswer,
  tokenRequestSchema,
} from '../../../amphora-agent/protocol/key-manager/key-channel.js'
import type { Call } from '../../api/call.js'
import type { Dialect } from '../../api/dialect.js'
import { routesFor } from '../../api/route.js'
import { readJson } from '../../http/body.js'
import { ApiError, forbidden } from '../../http/errors.js'
import type { Checks } from '../../inspection/checks.js'
import { presentFault } from '../api/dialect.js'
import type { Actor } from '../audit/record.js'
import type { RecordRefusal } from '../audit/refusals.js'
import { CryptoUnavailable } from '../crypto/backend.js'
import { parseBody } from '../input.js'
import type { Service } from '../service.js'
import { type ChannelTokens, TOKEN_SECONDS } from './tokens.js'

export type ChannelService = Service & { checks: Checks; recordRefusal: RecordRefusal }

/** `controller`, or an amphora's id. */
export type ChannelCaller = { subject: string }

/** Who may use a route. */
export type ChannelRight = 'controller' | 'amphora'

export type ChannelCall<Body = unknown> = Call<ChannelCaller, Body>

export const { route } = routesFor<ChannelService, ChannelCaller, ChannelRight>()

const MAX_BODY_BYTES = 256 * 1024

/** The dialect of the key channel: the key manager's errors, and its own tokens. */
export function channelDialect(tokens: ChannelTokens): Dialect<ChannelService, ChannelCaller, ChannelRight> {
  return {
    name: 'key-channel',
    trustedProxies: [],
    caseSensitive: true,
    headIsGet: false,
    body: { maxBytes: MAX_BODY_BYTES, exactType: true },
    authenticate: async ctx => {
      const subject = tokens.read(ctx.get('X-Auth-Token'))
      if (subject === null) throw new ApiError(401, 'The token is not valid, or no longer.')
      return { subject }
    },
    hidesPath: () => true,
    placeOf: caller => (caller === null ? null : [caller.subject, '']),
    admit: ctx => ctx.set('Cache-Control', 'no-store'),
    intercept: { [TOKEN_PATH]: ctx => giveToken(ctx, tokens) },
    authorise: (_, { caller }, right) => {
      const isController = caller.subject === 'controller'
      if (isController !== (right === 'controller')) throw forbidden(`Only ${right}s may do this.`)
    },
    validate: (schema, value) => parseBody(schema, value, schema.meta()?.title ?? 'body'),
    translate: error => {
      if (!(error instanceof CryptoUnavailable)) return error
      const answered = new ApiError(503, 'The crypto back end is unavailable; try again later.', error.headers)
      answered.cause = error
      return answered
    },
    presentFault,
  }
}

/** Answers a client that proves its key on this very connection. */
async function giveToken(ctx: Context, tokens: ChannelTokens): Promise<void> {
  ctx.set('Cache-Control', 'no-store')
  if (ctx.method !== 'POST') throw new ApiError(405, 'Only POST is allowed.', { Allow: 'POST' })
  const { subject, signature } = parseBody(tokenRequestSchema, await readJson(ctx, 4096), 'token request')
  if (!tokens.isProven(subject, Buffer.from(signature, 'base64'), ctx.req.socket as TLSSocket)) {
    throw new ApiError(401, 'The signature is not that of the subject on this connection.')
  }
  const answer: TokenAnswer = { token: tokens.issue(subject), expires_in: TOKEN_SECONDS }
  ctx.body = answer
}

/** The actor of an amphora's request, for audit records. */
export const amphoraActor = ({ requestId, address }: ChannelCall, projectId: string | null): Actor => ({
  userId: null,
  projectId,
  requestId,
  remoteAddress: address,
})
