import { createHash } from 'node:crypto'
import type { Credential } from '../../amphora-agent/protocol/key-manager/credential.js'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import { type MaterialReference, materialKey, referencesIn } from '../load-balancer/tree/certificate-references.js'
import type { LoadBalancerTree, TlsMaterial } from '../load-balancer/tree/tree.js'
import type { Logger } from '../log/log.js'
import { backOffSeconds } from '../queue/back-off.js'
import type { Found } from './found.js'
import { MUST_TELL, storeFound, storeUntold } from './store.js'

/** What is known of a load balancer's references at the key manager: the part of the tree that this keeps. */
export type Binding = Pick<LoadBalancerTree, 'material' | 'boundSha256'>

/**
 * Tells the key manager what load balancers use and which amphorae serve them, so that it keeps that, and lets those
 * amphorae read it. Asks only when something of that has changed.
 */
export type Bindings = {
  /**
   * Binds all that the load balancer refers to, besides what it was bound to before. If the key manager does not answer,
   * it is away, and what is known of the references stays.
   * @param amphorae ids of all amphorae of the load balancer
   */
  bind: (tree: LoadBalancerTree, amphorae: readonly string[]) => Promise<{ binding: Binding; isAway: boolean }>
  /**
   * What the load balancer's amphorae read its material with, if they have no key of their own for that.
   * @returns null if they have one, or if there is no credential now
   */
  lend: (tree: LoadBalancerTree) => Promise<Credential | null>
  /** Releases what the load balancer no longer refers to. Call it once nothing serves that any more. */
  settle: (tree: LoadBalancerTree, amphorae: readonly string[]) => Promise<void>
  /** Releases all of a load balancer that is gone. @throws KeyManagerAway */
  release: (tree: LoadBalancerTree) => Promise<void>
  /**
   * Makes those load balancers due of which the key manager must be told again, because it asks for that or because it
   * was away, and releases those that do not exist.
   * @returns how many there were @throws KeyManagerAway
   */
  tend: () => Promise<number>
}

/** The key manager gives no answer that means something. */
export class KeyManagerAway extends Error {}

/** A key manager's side of bindings. Every call may throw KeyManagerAway. */
export type Keeper = {
  /** Whether each amphora needs a right of its own to read. */
  knowsAmphorae: boolean
  /** Lets a load balancer use exactly these references, and its amphorae read what they lead to. */
  bind: (
    tree: LoadBalancerTree,
    references: readonly MaterialReference[],
    amphorae: readonly string[],
  ) => Promise<readonly Found[]>
  lend: Bindings['lend']
  /** @param refs all that the load balancer may still be bound to, as far as that is known */
  release: (id: string, refs: readonly string[]) => Promise<void>
  /** Load balancers to bind again. */
  due: () => Promise<readonly string[]>
}

export type BindingsOptions = {
  keeper: Keeper
  /** The role of the load balancer service. */
  database: Database
  log: Logger
}

export function createBindings({ keeper, database, log }: BindingsOptions): Bindings {
  const tell = async (
    tree: LoadBalancerTree,
    references: readonly MaterialReference[],
    amphorae: readonly string[],
  ): Promise<Binding> => {
    const boundSha256 = hashOf(references, keeper.knowsAmphorae ? amphorae : [])
    if (tree.boundSha256 === boundSha256) return tree
    await storeUntold(database, tree.id, references)
    const found = await keeper.bind(tree, references, amphorae)
    await storeFound(database, tree.id, found, boundSha256)
    return { boundSha256, material: found.map(one => merged(one, tree.material)) }
  }
  return {
    bind: async (tree, amphorae) => {
      const wanted = referencesIn(tree)
      if (wanted.length === 0 && tree.material.length === 0 && tree.boundSha256 === null)
        return { binding: tree, isAway: false }
      const references = together(wanted, tree.material)
      try {
        return { binding: await tell(tree, references, amphorae), isAway: false }
      } catch (error) {
        if (!(error instanceof KeyManagerAway)) throw error
        log.warn({ loadBalancer: tree.id }, `cannot bind certificates: ${error.message}`)
        const material = references.map(one => merged(one, tree.material))
        return { binding: { boundSha256: MUST_TELL, material }, isAway: true }
      }
    },
    lend: async tree =>
      keeper.lend(tree).catch((error: unknown) => {
        if (!(error instanceof KeyManagerAway)) throw error
        log.warn({ loadBalancer: tree.id }, `cannot lend a credential for certificates: ${error.message}`)
        return null
      }),
    settle: async (tree, amphorae) => {
      const wanted = referencesIn(tree)
      if (wanted.length === tree.material.length) return
      await tell(tree, wanted, amphorae).catch((error: unknown) => {
        if (!(error instanceof KeyManagerAway)) throw error
        log.warn({ loadBalancer: tree.id }, `cannot release certificates: ${error.message}`)
      })
    },
    release: async tree => {
      const refs = [...tree.material, ...referencesIn({ ...tree, change: 'update' })].map(({ ref }) => ref)
      if (tree.boundSha256 !== null || refs.length > 0) await keeper.release(tree.id, [...new Set(refs)])
    },
    tend: async () => {
      const ids = await keeper.due()
      const made = await makeDue(database, ids)
      const gone = ids.filter(one => !made.includes(one))
      for (const id of gone) await keeper.release(id, [])
      return made.length + gone.length
    },
  }
}

/** Once it is back, the key manager is told within this time, however long it was away. */
const TOLD_WITHIN_SECONDS = 30
/** SQL: a recheck waits for the end of a pause after a failed attempt a moment ago, or is due in a moment. */
const PAUSES = sql`(recheck_at > now()
  AND CASE WHEN attempts = 0 THEN recheck_at < now() + ${TOLD_WITHIN_SECONDS} * interval '1 second'
           ELSE recheck_at - ${backOffSeconds(sql`attempts`)} * interval '1 second'
                  > now() - ${TOLD_WITHIN_SECONDS} * interval '1 second' END)`

/**
 * Makes load balancers due of which the key manager must be told: those that it asks for, and those of which it did not
 * hear before, unless a worker is at it. What was tried in vain keeps its pauses between attempts.
 * @returns those that exist
 */
async function makeDue(database: Database, ids: readonly string[]): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ id: string }>`
      UPDATE load_balancer
         SET bound_sha256 = ${MUST_TELL},
             recheck_at = CASE WHEN bound_sha256 IS NOT DISTINCT FROM ${MUST_TELL} AND ${PAUSES} THEN recheck_at ELSE now() END,
             retry_at = CASE WHEN bound_sha256 IS DISTINCT FROM ${MUST_TELL} THEN least(retry_at, now()) ELSE retry_at END
       WHERE id = ANY(${ids}::uuid[])
          OR bound_sha256 = ${MUST_TELL} AND coalesce(recheck_at > now() AND NOT ${PAUSES}, true)
             AND (lease_until IS NULL OR lease_until < now())
      RETURNING id, pg_notify(${WAKE_CHANNEL}, id::text)`,
  )
  return rows.map(({ id }) => id)
}

/** What is wanted, and what is still bound besides. */
function together(wanted: readonly MaterialReference[], known: readonly TlsMaterial[]): MaterialReference[] {
  const keys = new Set(wanted.map(materialKey))
  return [
    ...wanted,
    ...known
      .filter(one => !keys.has(materialKey(one)))
      .map(({ ref, kind }): MaterialReference => ({ ref, kind, authority: null })),
  ]
}

/** What was found of a reference; if it cannot be used any more, what it led to before. */
function merged(found: Pick<Found, 'ref' | 'kind'> & Partial<Found>, known: readonly TlsMaterial[]): TlsMaterial {
  const { ref, kind, digest, reason } = found
  const before = known.find(one => one.ref === ref && one.kind === kind)
  return { ref, kind, digest: digest ?? before?.digest ?? null, problem: reason ?? null }
}

function hashOf(references: readonly MaterialReference[], amphorae: readonly string[]): string {
  const content = JSON.stringify([references.map(materialKey).sort(), [...amphorae].sort()])
  return createHash('sha256').update(content).digest('hex')
}
