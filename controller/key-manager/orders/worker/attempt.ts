import { once } from 'node:events'
import type { Database } from '../../../database/connection.js'
import { isDatabaseAway } from '../../../database/database-away.js'
import { sqlState } from '../../../database/transaction.js'
import type { Logger } from '../../../log/log.js'
import { type Claim, isHeld } from '../../../queue/claim.js'
import { createDatabaseWait } from '../../../queue/database-wait.js'
import { CryptoUnavailable } from '../../crypto/backend.js'
import type { Keyring } from '../../crypto/keyring.js'
import { passphraseContext } from '../order.js'
import type { Order, OrderExecutor, OrderOutcome } from '../outcome.js'
import { wakeForNextSuspect } from './due.js'
import { type ClaimedOrder, readOrder } from './read-order.js'
import { type Failed, type Later, postponeOrder, recordFailure, releaseOrder } from './settle.js'
import { storeResult } from './store-result.js'

export type OrderContext = {
  database: Database
  keyring: Keyring
  executors: Readonly<Record<Order['type'], OrderExecutor>>
  log: Logger
}

/** After so many attempts without a result, an order is not retried: it probably kills the workers. */
const MAX_LAPSED_CLAIMS = 5

/**
 * SQLSTATE classes that are not the order's fault: conflicts, resources, locks, operator intervention, system
 * errors.
 */
const TRANSIENT_STATE = /^(40|53|55|57|58)/

/** What the tenant sees when the fault is ours. */
const INTERNAL: Failed = {
  kind: 'failed',
  statusCode: '500',
  reason: 'The order failed because of a fault in the service.',
}

const LAPSED_TOO_OFTEN: Failed = {
  kind: 'failed',
  statusCode: '500',
  reason: `The order was started ${MAX_LAPSED_CLAIMS} times and interrupted each time; it is not retried.`,
}

const REFERENCE_DELETED: Failed = {
  kind: 'failed',
  statusCode: '400',
  reason: 'A secret that the result refers to was deleted.',
}

const STORAGE_UNAVAILABLE: Later = {
  kind: 'later',
  seconds: null,
  subStatus: 'storage_unavailable',
  subStatusMessage: 'Keys cannot be stored at the moment; the order is retried automatically.',
}

type Outcome = OrderOutcome | Later | { kind: 'aborted' }

/**
 * Executes and settles one claimed order, or releases it. Never throws. While the database is unavailable, it keeps the
 * result and retries to store it until the claim expires.
 * @returns seconds until the order is due again; null when this process has nothing left to do
 */
export async function attemptOrder(context: OrderContext, claim: Claim, signal: AbortSignal): Promise<number | null> {
  const { database, log } = context
  const started = performance.now()
  const wait = createDatabaseWait()
  let order: ClaimedOrder | null = null
  let outcome: Outcome | null = null
  for (;;) {
    try {
      order ??= await readOrder(database, claim)
      if (order === null) return null
      outcome ??= order.lapsedClaims < MAX_LAPSED_CLAIMS ? await executeOrder(context, order, signal) : LAPSED_TOO_OFTEN
      const seconds = await settle(context, claim, order, outcome)
      if (order.lapsedClaims > 0) await wakeForNextSuspect(database)
      const milliseconds = Math.round(performance.now() - started)
      log.info({ order: claim.id, type: order.type, outcome: outcome.kind, milliseconds }, 'order attempted')
      return seconds
    } catch (error) {
      if (!isDatabaseAway(error)) {
        // Avoids endless retries when the outcome cannot be stored.
        if (order === null || outcome === INTERNAL || outcome === STORAGE_UNAVAILABLE) {
          log.error({ order: claim.id, err: error }, 'could not settle the order; its lease will expire')
          return null
        }
        outcome = faultOutcome(error)
        log[outcome === INTERNAL ? 'error' : 'warn']({ order: claim.id, err: error }, 'error while processing an order')
        continue
      }
      if (signal.aborted || !isHeld(claim) || wait.isOver()) return null
      await wait.pause()
    }
  }
}

function faultOutcome(error: unknown): Failed | Later {
  const isTransient = error instanceof CryptoUnavailable || TRANSIENT_STATE.test(sqlState(error))
  return isTransient ? STORAGE_UNAVAILABLE : INTERNAL
}

async function executeOrder(
  { executors, keyring }: OrderContext,
  claimed: ClaimedOrder,
  signal: AbortSignal,
): Promise<Outcome> {
  const { sealedPassphrase, lapsedClaims: _, ...rest } = claimed
  const passphrase =
    sealedPassphrase === null
      ? null
      : (await keyring.open(sealedPassphrase, passphraseContext(claimed.id))).toString('utf8')
  // Native threads cannot be interrupted: their result is dropped after an abort.
  return Promise.race([executors[claimed.type]({ ...rest, passphrase }, signal), aborted(signal)])
}

async function aborted(signal: AbortSignal): Promise<{ kind: 'aborted' }> {
  if (!signal.aborted) await once(signal, 'abort')
  return { kind: 'aborted' }
}

async function settle(
  { database, keyring }: OrderContext,
  claim: Claim,
  order: ClaimedOrder,
  outcome: Outcome,
): Promise<number | null> {
  switch (outcome.kind) {
    case 'aborted':
      await releaseOrder(database, claim)
      return null
    case 'later':
      return postponeOrder(database, claim, outcome)
    case 'failed':
      await recordFailure(database, claim, order, outcome)
      return null
    case 'made': {
      const stored = await storeResult({ database, keyring }, claim, order, outcome)
      if (stored === 'reference gone') await recordFailure(database, claim, order, REFERENCE_DELETED)
      return null
    }
  }
}
