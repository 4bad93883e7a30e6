import type { Transaction } from '../../database/transaction.js'

/** An order as its executor sees it. */
export type Order = {
  id: string
  projectId: string
  creatorId: string
  type: 'key' | 'asymmetric' | 'certificate'
  /** As it was asked for, without a passphrase. */
  meta: Readonly<Record<string, unknown>>
  passphrase: string | null
  retries: number
}

/** One secret that an order makes. */
export type MadeSecret = {
  /** Its name in the container, such as private_key; null when there is no container. */
  role: string | null
  name: string | null
  secretType: 'symmetric' | 'private' | 'public' | 'certificate' | 'passphrase' | 'opaque'
  algorithm: string | null
  bitLength: number | null
  mode: string | null
  expiration: Date | null
  payload: Buffer
  contentType: string
}

export type OrderOutcome =
  | {
      kind: 'made'
      secrets: readonly MadeSecret[]
      /** Null when the result is the one secret. */
      container: { name: string | null; type: 'generic' | 'rsa' | 'certificate' } | null
      /** Secrets that stand already and go into the container as well. */
      references?: readonly { role: string; secretId: string }[]
      subStatus?: string
      subStatusMessage?: string
      /** What else must be stored together with the result. */
      alsoStore?: (trx: Transaction) => Promise<void>
    }
  | { kind: 'later'; seconds: number; subStatus: string; subStatusMessage: string }
  /** For good: `reason` is for the tenant and tells nothing secret. */
  | { kind: 'failed'; statusCode: '400' | '403' | '500'; reason: string; subStatus?: string }

/**
 * Carries out one kind of order. It stores nothing itself: all that it makes is stored in one transaction together with the order's new state, so a
 * process that dies leaves nothing half made and the order is carried out again.
 */
export type OrderExecutor = (order: Order, signal: AbortSignal) => Promise<OrderOutcome>
