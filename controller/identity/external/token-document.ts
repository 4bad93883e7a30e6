import * as z from 'zod'
import { accessRuleSchema } from '../access-rules.js'
import type { Caller } from '../caller.js'
import { callerFrom } from '../tokens/document.js'

const named = z.object({ id: z.string(), name: z.string() })
const inDomain = named.extend({ domain: named })

/** Token times are UTC. An expiry that comes from an application credential lacks the `Z`. */
const time = z
  .string()
  .transform(text => new Date(/(Z|[+-]\d\d:?\d\d)$/i.test(text) ? text : `${text}Z`))
  .refine(date => !Number.isNaN(date.getTime()))

const documentSchema = z.object({
  user: inDomain,
  issued_at: time,
  expires_at: time,
  project: inDomain.optional(),
  domain: named.optional(),
  system: z.object({ all: z.literal(true) }).optional(),
  roles: z.array(named).optional(),
  application_credential: z.object({ access_rules: z.array(z.unknown()).optional() }).optional(),
  catalog: z
    .array(
      z.object({
        type: z.string(),
        endpoints: z.array(z.object({ interface: z.string(), region_id: z.string().nullish(), url: z.string() })),
      }),
    )
    .optional(),
})

const answerSchema = z.object({ token: documentSchema })

/** Keystone's description of a token. */
export type KeystoneToken = z.output<typeof documentSchema>

/** @returns null if this is not a token document */
export function readTokenDocument(body: unknown): KeystoneToken | null {
  const parsed = answerSchema.safeParse(body)
  return parsed.success ? parsed.data.token : null
}

/** Whether an application credential limits the token to certain requests. */
export const hasAccessRules = (token: KeystoneToken): boolean =>
  token.application_credential?.access_rules !== undefined

/**
 * The caller that a token represents. Ignores access rules that Krater does not understand or whose service is not in
 * the token's catalogue, so they allow nothing.
 */
export function callerOfToken(token: KeystoneToken): Caller {
  const { user, project, domain, system, roles, expires_at: expiresAt } = token
  const rules = token.application_credential?.access_rules
  const types = new Set(token.catalog?.map(({ type }) => type))
  const understood = rules
    ?.map(rule => accessRuleSchema.safeParse(rule).data)
    .filter(rule => rule !== undefined && types.has(rule.service))
  return callerFrom(
    {
      user,
      ...(project && { project }),
      ...(domain && { domain }),
      ...(system && { system }),
      ...(roles && { roles }),
      ...(understood && { access_rules: understood.filter(rule => rule !== undefined) }),
    },
    expiresAt,
  )
}
