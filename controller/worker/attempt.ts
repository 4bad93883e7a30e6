import type { Database } from '../database/connection.js'
import { isDatabaseAway } from '../database/database-away.js'
import { readTree } from '../load-balancer/tree/read-tree.js'
import type { LoadBalancerTree } from '../load-balancer/tree/tree.js'
import type { Logger } from '../log/log.js'
import { type Action, AppliedWithFault, ClaimLost, type Provider, ProvisioningFault } from '../provider/provider.js'
import { type Claim, isHeld, releaseClaim } from '../queue/claim.js'
import { createDatabaseWait } from '../queue/database-wait.js'
import { type Fault, recordFault, settle, settleWithFault } from './settle.js'

export type AttemptContext = { database: Database; providers: ReadonlyMap<string, Provider>; log: Logger }

/**
 * `settled`: nothing is left to do. `failed`: a fault is recorded; `retrySeconds` until the next attempt.
 * `lost`: another worker holds the load balancer, or it was deleted. `interrupted`: this worker stops, or the
 * database stayed away.
 */
export type Outcome =
  | { kind: 'settled' }
  | { kind: 'failed'; retrySeconds: number }
  | { kind: 'lost' }
  | { kind: 'interrupted' }

/**
 * Converges one claimed load balancer to its newest generation, and to any that arrive while it runs, or
 * records the fault. Releases the claim unless it is lost. Never throws: logs unexpected errors, of which the
 * owner of the load balancer reads only a neutral sentence.
 */
export async function attempt(context: AttemptContext, claim: Claim, signal: AbortSignal): Promise<Outcome> {
  const wait = createDatabaseWait()
  for (;;) {
    try {
      const outcome = await convergeOnce(context, claim, signal, !wait.isOver())
      if (outcome !== 'again') return outcome
      if (signal.aborted) return await interrupt(context, claim)
      wait.reset()
    } catch (error) {
      if (!isDatabaseAway(error)) {
        context.log.error({ loadBalancer: claim.id, err: error }, 'cannot record an attempt')
        return { kind: 'interrupted' }
      }
      if (signal.aborted || !isHeld(claim)) return { kind: 'interrupted' }
      await wait.pause()
    }
  }
}

async function convergeOnce(
  context: AttemptContext,
  claim: Claim,
  signal: AbortSignal,
  patient: boolean,
): Promise<Outcome | 'again'> {
  const { database, log } = context
  const started = performance.now()
  const tree = await readTree(database, claim.id)
  if (tree === null) return { kind: 'lost' }
  const actions: Action[] = []
  const effort = () => ({ milliseconds: Math.round(performance.now() - started), amphorae: actions })
  const facts = { loadBalancer: claim.id, fence: claim.fence, generation: tree.generation }
  try {
    log.debug(facts, 'converge begins')
    await findProvider(context, tree)
      .converge(claim, tree, signal, action => actions.push(action))
      .finally(() => log.debug(facts, 'converge ends'))
    const { milliseconds, amphorae } = effort()
    const settled = await settle(database, claim, tree, { milliseconds, amphorae })
    if (settled === 'lost') return { kind: 'lost' }
    log.info({ loadBalancer: tree.id, generation: tree.generation, milliseconds }, 'load balancer converged')
    return settled === 'again' ? 'again' : { kind: 'settled' }
  } catch (error) {
    if (isDatabaseAway(error) && patient) throw error
    if (error instanceof ClaimLost) return interrupt(context, claim)
    const fault = presentFault(error)
    if (fault.code === 'internal') log.error({ loadBalancer: tree.id, err: error }, 'unexpected fault while converging')
    else
      log.warn(
        { loadBalancer: tree.id, generation: tree.generation, fault, ...causeOf(error) },
        'load balancer not converged',
      )
    if (error instanceof AppliedWithFault) {
      const { settled, retrySeconds } = await settleWithFault(database, claim, tree, { effort: effort(), fault })
      return settled === 'settled' ? { kind: 'failed', retrySeconds } : settled === 'lost' ? { kind: 'lost' } : settled
    }
    const retrySeconds = await recordFault(database, claim, tree, fault, effort())
    return retrySeconds === null ? { kind: 'lost' } : { kind: 'failed', retrySeconds }
  }
}

function findProvider({ providers }: AttemptContext, tree: LoadBalancerTree): Provider {
  const provider = providers.get(tree.provider)
  if (provider === undefined) {
    throw new ProvisioningFault('provider-not-enabled', `The provider "${tree.provider}" is not enabled.`)
  }
  return provider
}

/** Releases the claim, if it is still ours (fenced). */
async function interrupt({ database }: AttemptContext, claim: Claim): Promise<Outcome> {
  await releaseClaim(database, claim)
  return { kind: 'interrupted' }
}

const causeOf = (error: unknown): { err?: unknown } =>
  error instanceof Error && error.cause !== undefined ? { err: error.cause } : {}

function presentFault(error: unknown): Fault {
  if (error instanceof ProvisioningFault) return { code: error.code, text: error.message }
  return { code: 'internal', text: 'An unexpected fault stopped the change. It is retried automatically.' }
}
