import { Unusable } from '../../x509/material/material.js'
import type { RequestedReferences, Target } from '../../x509/material/reference.js'
import type { CheckerOptions } from '../certificates/barbican/checker/check.js'
import { checkApart } from '../certificates/barbican/checker/check.js'
import type { Consumer, Consumers } from '../certificates/barbican/consumers.js'
import { KeyManagerUnavailable } from '../certificates/barbican/errors.js'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'
import { ApiError } from '../http/errors.js'
import { IdentityUnavailable } from '../identity/external/identity-unavailable.js'
import { CHECK_LIMITS, CheckTooSlow, createCheckTurns, type Verdict } from '../inspection/checks.js'
import { noRecheckDue } from '../load-balancer/change/recheck-due.js'
import { type MaterialReference, referencesIn } from '../load-balancer/tree/certificate-references.js'
import type { LoadBalancerTree } from '../load-balancer/tree/tree.js'
import { type Keeper, KeyManagerAway } from './bindings.js'
import type { Found } from './found.js'
import { type Lender, targetsOf } from './lender.js'
import { MUST_TELL } from './store.js'

export type BarbicanKeeperOptions = Omit<CheckerOptions, 'limits'> & {
  consumers: Consumers
  lender: Lender
  /** Asks Barbican for something cheap. Throws KeyManagerUnavailable, IdentityUnavailable */
  reach: () => Promise<void>
  /** The role of the load balancer service. */
  database: Database
  /** The URL of a load balancer, as its consumers show it. */
  loadBalancerUrl: (id: string) => string
}

/** All references of one load balancer at once. */
const LIMITS = { ...CHECK_LIMITS, maxReferences: 4_000, checkSeconds: 100 }
/** A slow Barbican holds up a change no longer. Once the change is in effect, its references are looked up with more time. */
const CHANGE_SECONDS = 10
/** How often references are looked up again: Barbican tells nobody that a secret or its ACL has changed. */
const LOOK_MINUTES = 15
const MAX_DUE = 20

/**
 * A real Barbican. Our service user may read what tenants have shared with it; a process of its own looks at it, and
 * amphorae read it with a credential that lasts less than an hour.
 */
export function createBarbicanKeeper(options: BarbicanKeeperOptions): Keeper {
  const { consumers, lender, database, loadBalancerUrl } = options
  const limitsFor = ({ generation, appliedGeneration }: LoadBalancerTree) =>
    generation === appliedGeneration ? LIMITS : { ...LIMITS, checkSeconds: CHANGE_SECONDS }
  const turns = createCheckTurns(LIMITS)
  const consumerOf = (id: string) => ({ id, url: loadBalancerUrl(id) })
  return {
    // They read with a credential that is lent to the load balancer.
    knowsAmphorae: false,
    bind: (tree, references) =>
      orAway(async () => {
        // No change waits for this: while the services hang, it holds up no worker for long.
        if (tree.generation === tree.appliedGeneration) await options.reach()
        const requested = requestOf(references)
        const limits = limitsFor(tree)
        const end = performance.now() + limits.checkSeconds * 1000
        const each = async (refs: readonly string[], act: (target: Target, consumer: Consumer) => Promise<void>) => {
          for (const target of targetsOf(refs)) {
            if (performance.now() > end)
              throw new CheckTooSlow(`the key manager takes longer than ${limits.checkSeconds} s`)
            await act(target, consumerOf(tree.id))
          }
        }
        const verdicts = await turns([tree.projectId, tree.id], requested, () =>
          checkApart({ ...options, limits }, null, requested),
        )
        const usable = verdicts.filter(({ wrong }) => wrong === null).map(({ ref }) => ref)
        await each(usable, consumers.register)
        const kept = new Set(references.map(({ ref }) => ref))
        await each(
          tree.material.map(({ ref }) => ref).filter(ref => !kept.has(ref)),
          consumers.release,
        )
        if (references.length === 0) await lender.end(tree.id)
        return verdicts.map(toFound)
      }),
    lend: tree =>
      orAway(() =>
        lender.lend(
          tree.id,
          referencesIn(tree).map(({ ref }) => ref),
        ),
      ),
    release: (id, refs) =>
      orAway(async () => {
        for (const target of targetsOf(refs)) await consumers.release(target, consumerOf(id))
        await lender.end(id)
      }),
    due: () =>
      orAway(async () => {
        const ids = await dueLoadBalancers(database)
        if (ids.length === 0) return ids
        // While the services do not answer, nothing becomes due: each load balancer would try in vain, every time.
        await options.reach()
        await lender.sweep()
        return ids
      }),
  }
}

async function orAway<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const isAway = [KeyManagerUnavailable, IdentityUnavailable, CheckTooSlow, Unusable, ApiError].some(
      kind => error instanceof kind,
    )
    throw isAway ? new KeyManagerAway((error as Error).message) : error
  }
}

function requestOf(references: readonly MaterialReference[]): RequestedReferences {
  const refs = (kind: MaterialReference['kind']) => references.filter(one => one.kind === kind)
  return {
    certificates: refs('certificate').map(({ ref }) => ref),
    authorities: refs('authority').map(({ ref }) => ref),
    revocationLists: refs('revocation list').map(({ ref, authority }) => ({ ref, authority: authority ?? '' })),
  }
}

const toFound = ({ ref, kind, ...found }: Verdict): Found =>
  found.wrong === null ? { ref, kind, digest: found.digest, facts: found.facts } : { ref, kind, reason: found.wrong }

/** Load balancers whose references were not looked up lately, and then those of which Barbican was not told. */
export async function dueLoadBalancers(database: Database): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ id: string }>`
      SELECT b.id FROM load_balancer b
       WHERE b.change <> 'delete' AND ${noRecheckDue('b')} AND (b.lease_until IS NULL OR b.lease_until < now())
         AND (b.bound_sha256 = ${MUST_TELL}
              OR EXISTS (SELECT FROM tls_material m
                          WHERE m.load_balancer_id = b.id AND m.checked_at < now() - ${LOOK_MINUTES} * interval '1 minute'))
       ORDER BY b.bound_sha256 IS NOT DISTINCT FROM ${MUST_TELL} LIMIT ${MAX_DUE}`,
  )
  return rows.map(({ id }) => id)
}
