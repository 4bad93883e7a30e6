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

/** An order of which nothing was heard any more after so many attempts is not tried again: it is likely to be what ends the workers. */
const MOST_LAPSED_CLAIMS = 5

/** SQLSTATE classes that say nothing about the work: conflicts, resources, locks, intervention, the system itself. */
const TRANSIENT_STATE = /^(40|53|55|57|58)/

/** What the tenant reads when the fault is ours. */
const INTERNAL: Failed = {
  kind: 'failed',
  statusCode: '500',
  reason: 'The order could not be carried out because of a fault in the service.',
}

const LAPSED_TOO_OFTEN: Failed = {
  kind: 'failed',
  statusCode: '500',
  reason: `The order was begun ${MOST_LAPSED_CLAIMS} times, and each time cut off before it was carried out; it is not tried again.`,
}

const REFERENCE_GONE: Failed = {
  kind: 'failed',
  statusCode: '400',
  reason: 'A secret that the result refers to was deleted meanwhile.',
}

const STORAGE_AWAY: Later = {
  kind: 'later',
  seconds: null,
  subStatus: 'storage_unavailable',
  subStatusMessage: 'Keys cannot be stored at the moment; the order is tried again by itself.',
}

type Outcome = OrderOutcome | Later | { kind: 'aborted' }

/**
 * Carries out one claimed order and settles it, or gives it back when that is not possible now. Never throws. While the database is away
 * it keeps what was made and tries again to store it, for as long as the claim is held.
 * @returns seconds until the order is to be tried again; null when nothing is left to do, or nothing that this process may do
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
      outcome ??=
        order.lapsedClaims < MOST_LAPSED_CLAIMS ? await executeOrder(context, order, signal) : LAPSED_TOO_OFTEN
      const seconds = await settle(context, claim, order, outcome)
      if (order.lapsedClaims > 0) await wakeForNextSuspect(database)
      const milliseconds = Math.round(performance.now() - started)
      log.info({ order: claim.id, type: order.type, outcome: outcome.kind, milliseconds }, 'order attempted')
      return seconds
    } catch (error) {
      if (!isDatabaseAway(error)) {
        // What cannot be stored must not be tried for ever.
        if (order === null || outcome === INTERNAL || outcome === STORAGE_AWAY) {
          log.error({ order: claim.id, err: error }, 'an order could not be settled; its lease lapses')
          return null
        }
        outcome = outcomeOfFault(error)
        log[outcome === INTERNAL ? 'error' : 'warn']({ order: claim.id, err: error }, 'an order met a fault')
        continue
      }
      if (signal.aborted || !isHeld(claim) || wait.isOver()) return null
      await wait.pause()
    }
  }
}

function outcomeOfFault(error: unknown): Failed | Later {
  const isTransient = error instanceof CryptoUnavailable || TRANSIENT_STATE.test(sqlState(error))
  return isTransient ? STORAGE_AWAY : INTERNAL
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
  // Native threads cannot be interrupted: what they make after an abort is dropped.
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
      if (stored === 'reference gone') await recordFailure(database, claim, order, REFERENCE_GONE)
      return null
    }
  }
}
