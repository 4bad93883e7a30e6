import { createHash } from 'node:crypto'
import { z } from 'zod'
import { type KeyChannel, KeyChannelDown } from '../../amphora-agent/key-channel/client.js'
import type { Database } from '../database/connection.js'
import { execute, many } from '../database/query.js'
import { json, sql } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import { type MaterialReference, materialKey, referencesIn } from '../load-balancer/tree/certificate-references.js'
import type { LoadBalancerTree, TlsMaterial } from '../load-balancer/tree/tree.js'
import type { Logger } from '../log/log.js'

/** What is known of a load balancer's references at the key manager: the part of the tree that this keeps. */
export type Binding = Pick<LoadBalancerTree, 'material' | 'boundSha256'>

/**
 * Tells the key manager what load balancers use and which amphorae serve them, so that it keeps that, and lets those
 * amphorae read it. Asks only when something of that has changed.
 */
export type Bindings = {
  /**
   * Binds all that the load balancer refers to, besides what it was bound to before. If the key manager does not answer,
   * what is known of the references stays.
   * @param amphorae ids of all amphorae of the load balancer
   */
  bind: (tree: LoadBalancerTree, amphorae: readonly string[]) => Promise<Binding>
  /** Releases what the load balancer no longer refers to. Call it once nothing serves that any more. */
  settle: (tree: LoadBalancerTree, amphorae: readonly string[]) => Promise<void>
  /** Releases all of a load balancer that is gone. @throws KeyChannelDown */
  release: (tree: LoadBalancerTree) => Promise<void>
  /**
   * Asks which load balancers the key manager must be told of again, makes those due, and releases those that do not
   * exist.
   * @returns how many there were @throws KeyChannelDown
   */
  tend: () => Promise<number>
}

export type BindingsOptions = {
  channel: KeyChannel
  /** The role of the load balancer service. */
  database: Database
  /** The URL of a load balancer, as its consumers show it. */
  loadBalancerUrl: (id: string) => string
  log: Logger
}

const facts = z.object({
  names: z.array(z.string()),
  issuer: z.string(),
  serial: z.string(),
  notBefore: z.string(),
  notAfter: z.string(),
  keyType: z.string(),
})

const answerSchema = z.object({
  references: z.array(
    z.object({
      ref: z.string(),
      kind: z.enum(['certificate', 'authority', 'revocation list']),
      digest: z.string().optional(),
      facts: facts.nullish(),
      reason: z.string().optional(),
    }),
  ),
})

const dueSchema = z.object({ load_balancers: z.array(z.uuid()) })

type Found = z.output<typeof answerSchema>['references'][number]

export function createBindings({ channel, database, loadBalancerUrl, log }: BindingsOptions): Bindings {
  const tell = async (
    tree: LoadBalancerTree,
    references: readonly MaterialReference[],
    amphorae: readonly string[],
  ): Promise<Binding> => {
    const boundSha256 = hashOf(references, amphorae)
    if (tree.boundSha256 === boundSha256) return tree
    const { status, bytes } = await channel.send({
      method: 'PUT',
      path: `/v1/bindings/${tree.id}`,
      body: { project_id: tree.projectId, url: loadBalancerUrl(tree.id), references, amphorae },
    })
    if (status !== 200)
      throw new KeyChannelDown(`The key manager refuses the binding: ${bytes.toString().slice(0, 200)}`)
    const found = answerSchema.parse(JSON.parse(bytes.toString())).references
    await store(database, tree.id, found, boundSha256)
    return { boundSha256, material: found.map(one => merged(one, tree.material)) }
  }
  return {
    bind: async (tree, amphorae) => {
      const wanted = referencesIn(tree)
      if (wanted.length === 0 && tree.material.length === 0 && tree.boundSha256 === null) return tree
      const references = together(wanted, tree.material)
      return tell(tree, references, amphorae).catch((error: unknown) => {
        if (!(error instanceof KeyChannelDown)) throw error
        log.warn({ loadBalancer: tree.id }, `cannot bind certificates: ${error.message}`)
        return { ...tree, material: references.map(one => merged(one, tree.material)) }
      })
    },
    settle: async (tree, amphorae) => {
      const wanted = referencesIn(tree)
      if (wanted.length === tree.material.length) return
      await tell(tree, wanted, amphorae).catch((error: unknown) => {
        if (!(error instanceof KeyChannelDown)) throw error
        log.warn({ loadBalancer: tree.id }, `cannot release certificates: ${error.message}`)
      })
    },
    release: async tree => {
      const isBound = tree.boundSha256 !== null || tree.material.length > 0 || refersToAny(tree)
      if (isBound) await releaseAll(channel, tree.id)
    },
    tend: async () => {
      const { bytes } = await channel.send({ method: 'GET', path: '/v1/bindings' })
      const { load_balancers: ids } = dueSchema.parse(JSON.parse(bytes.toString()))
      const present = ids.length === 0 ? [] : await makeDue(database, ids)
      for (const id of ids.filter(one => !present.includes(one))) await releaseAll(channel, id)
      return ids.length
    },
  }
}

async function releaseAll(channel: KeyChannel, id: string): Promise<void> {
  const { status } = await channel.send({ method: 'DELETE', path: `/v1/bindings/${id}` })
  if (status !== 204) throw new KeyChannelDown(`The key manager refuses to release a load balancer (status ${status})`)
}

/** In place of a hash: the key manager must be told again. */
const MUST_TELL = 'due'

/** Whether a load balancer, also one under deletion, refers to anything. */
const refersToAny = (tree: LoadBalancerTree): boolean => referencesIn({ ...tree, change: 'update' }).length > 0

/** @returns those that exist */
async function makeDue(database: Database, ids: readonly string[]): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ id: string }>`
      UPDATE load_balancer SET bound_sha256 = ${MUST_TELL}, recheck_at = now(), retry_at = least(retry_at, now())
       WHERE id = ANY(${ids}::uuid[]) RETURNING id, pg_notify(${WAKE_CHANNEL}, id::text)`,
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

/** Replaces what is known of a load balancer's references. Keeps the last facts of those that cannot be used any more. */
async function store(database: Database, id: string, found: readonly Found[], boundSha256: string): Promise<void> {
  const rows = found.map(({ ref, kind, digest = null, facts: known = null, reason = null }) => ({
    ref,
    kind,
    digest,
    facts: known,
    problem: reason,
  }))
  await execute(
    database,
    sql`WITH found AS (
       SELECT * FROM jsonb_to_recordset(${json(rows)}::jsonb)
                  AS f (ref text, kind text, digest text, facts jsonb, problem text)),
     gone AS (
       DELETE FROM tls_material m WHERE m.load_balancer_id = ${id}
          AND NOT EXISTS (SELECT FROM found f WHERE f.ref = m.ref AND f.kind = m.kind)),
     told AS (UPDATE load_balancer SET bound_sha256 = ${boundSha256} WHERE id = ${id} RETURNING id)
     INSERT INTO tls_material AS m (load_balancer_id, ref, kind, digest, facts, problem, problem_since)
     SELECT told.id, f.ref, f.kind, f.digest, f.facts, f.problem, CASE WHEN f.problem IS NOT NULL THEN now() END
       FROM told CROSS JOIN found f
     ON CONFLICT (load_balancer_id, ref, kind) DO UPDATE
        SET digest = coalesce(excluded.digest, m.digest), facts = coalesce(excluded.facts, m.facts),
            problem = excluded.problem, checked_at = now(),
            problem_since = CASE WHEN excluded.problem IS NOT NULL THEN coalesce(m.problem_since, now()) END`,
  )
}
