import * as z from 'zod'

/** What the checking process reads: one line of JSON. It holds tokens, so it is never logged or stored. */
export const checkJob = z.strictObject({
  keyManager: z.strictObject({
    url: z.string(),
    security: z.strictObject({ ca: z.string().optional(), insecure: z.boolean() }),
    connectTimeoutSeconds: z.number(),
    answerSeconds: z.number(),
  }),
  /** The caller's; null reads as the service user alone. */
  token: z.string().nullable(),
  serviceUser: z.strictObject({ token: z.string(), userId: z.string() }),
  requested: z.strictObject({
    certificates: z.array(z.string()),
    authorities: z.array(z.string()),
    revocationLists: z.array(z.strictObject({ ref: z.string(), authority: z.string() })),
  }),
  /** Indices of items that have a result already. */
  skip: z.array(z.int()),
  maxConcurrentReads: z.int(),
})

export type CheckJob = z.output<typeof checkJob>

export const certificateFacts = z.object({
  names: z.array(z.string()),
  issuer: z.string(),
  serial: z.string(),
  notBefore: z.string(),
  notAfter: z.string(),
  keyType: z.string(),
})

const inspected = z.union([
  z.object({ wrong: z.null(), digest: z.string(), facts: certificateFacts.nullable() }),
  z.object({ wrong: z.string() }),
])

/** A line that the process writes. It holds nothing but what the certificate shows to everybody. */
export const checkLine = z.union([
  /** The item's inspection begins. Reading does not count: it costs no processor time. */
  z.strictObject({ begins: z.int() }),
  z.strictObject({ found: z.int(), inspected }),
  /** The key manager does not accept the service user's token. */
  z.strictObject({ refused: z.literal(true) }),
  /** The key manager gives no usable answer; a text for the log. */
  z.strictObject({ unavailable: z.string() }),
])

export type CheckLine = z.output<typeof checkLine>
