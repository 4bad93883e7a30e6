import * as z from 'zod'

const service = z.strictObject({
  url: z.string(),
  /** PEM; null for the usual authorities. */
  ca: z.string().nullable(),
  /** Accepts any certificate, for test setups. */
  insecure: z.boolean(),
})

/**
 * A Keystone application credential that may read what one load balancer refers to, and how to reach the services. Agents
 * keep it in memory only.
 */
export const credentialSchema = z.strictObject({
  /** Names what it may read: a new one is needed when that changes. */
  scope: z.string(),
  id: z.string(),
  secret: z.string(),
  /** From its receipt. */
  seconds: z.int().positive(),
  /** Where the controller passes connections on to the two services. */
  gateway: z.strictObject({ host: z.union([z.ipv4(), z.ipv6()]), port: z.int().min(1).max(65535) }),
  /** `url` ends in /v3. */
  identity: service,
  /** `url` is the root, without /v1. */
  keyManager: service,
})

export type Credential = z.output<typeof credentialSchema>

/** What an agent says of the credential that it holds. */
export type HeldCredential = Pick<Credential, 'scope' | 'seconds'>
