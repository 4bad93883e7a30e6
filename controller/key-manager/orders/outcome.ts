import type { Transaction } from '../../database/transaction.js'

/** An order as its executor sees it. */
export type Order = {
  id: string
  projectId: string
  creatorId: string
  type: 'key' | 'asymmetric' | 'certificate'
  /** As requested, without the passphrase. */
  meta: Readonly<Record<string, unknown>>
  passphrase: string | null
  retries: number
}

/** One secret that an order creates. */
export type MadeSecret = {
  /** Its name in the container, such as private_key; null without a container. */
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
      /** Null when the result is a single secret. */
      container: { name: string | null; type: 'generic' | 'rsa' | 'certificate' } | null
      /** Existing secrets to add to the container. */
      references?: readonly { role: string; secretId: string }[]
      subStatus?: string
      subStatusMessage?: string
      /** Stores more in the transaction of the result. @param containerId null without a container */
      alsoStore?: (trx: Transaction, containerId: string | null) => Promise<void>
    }
  | { kind: 'later'; seconds: number; subStatus: string; subStatusMessage: string }
  /** Final. The tenant sees `reason`, so it must hold no secret. */
  | { kind: 'failed'; statusCode: '400' | '403' | '500'; reason: string; subStatus?: string }

/**
 * Executes one kind of order but stores nothing. Its result is stored in one transaction with the order's new
 * state, so a process that dies leaves nothing half done and the order is executed again.
 */
export type OrderExecutor = (order: Order, signal: AbortSignal) => Promise<OrderOutcome>
