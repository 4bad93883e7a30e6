import type { Knex } from 'knex'
import type { MaterialKind } from '../../../x509/material/load.js'
import { type RequestedReferences, readReference, type Target } from '../../../x509/material/reference.js'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { type Checks, CheckTooSlow, checkUnavailable, type Verdict } from '../../inspection/checks.js'
import type { Place } from '../../process/fair-queue.js'
import { outsideTurn } from '../../process/turn.js'
import type { Service } from '../service.js'
import type { BoundMaterial, Inspected } from './binding.js'
import { createStoredReader, type MayRead } from './stored-reader.js'

/** Why a reference cannot be used, or what it leads to. */
export type Checked = { ref: string; kind: MaterialKind } & ({ reason: string } | BoundMaterial)

/**
 * Checks what references lead to, in the key manager itself: nobody else needs to see a key for that.
 * @returns a verdict on each reference, and what was found of each object
 * @throws ApiError 400, 503
 */
export async function checkMaterial(
  service: Pick<Service, 'database' | 'keyring'> & { checks: Checks },
  place: Place,
  requested: RequestedReferences,
  mayRead: MayRead,
): Promise<{ checked: Checked[]; inspected: Inspected[] }> {
  const reader = createStoredReader(service, mayRead)
  const versions = await versionsOf(service.database, requested)
  const verdicts = await outsideTurn(() => service.checks.check(place, requested, () => reader)).catch(error => {
    if (!(error instanceof CheckTooSlow)) throw error
    throw checkUnavailable('The check of the certificate references took too long')
  })
  return { checked: verdicts.map(toChecked), inspected: inspectedOf(verdicts, versions) }
}

const toChecked = ({ ref, kind, ...found }: Verdict): Checked =>
  found.wrong === null ? { ref, kind, digest: found.digest, facts: found.facts } : { ref, kind, reason: found.wrong }

/** The versions of containers before anything of them is read, by their ids. */
async function versionsOf(database: Knex, { certificates }: RequestedReferences): Promise<ReadonlyMap<string, number>> {
  const ids = certificates.flatMap(ref => {
    const target = readReference(ref)
    return target?.kind === 'containers' ? [target.id] : []
  })
  const rows = await many(
    database,
    sql<{ id: string; version: number }>`SELECT id, version FROM container WHERE id = ANY(${ids}::uuid[])`,
  )
  return new Map(rows.map(({ id, version }) => [id, version]))
}

/** What references lead to, each object once. One that cannot be used has no material. */
function inspectedOf(verdicts: readonly Verdict[], versions: ReadonlyMap<string, number>): Inspected[] {
  const inspected = new Map<string, Inspected>()
  for (const { ref, kind, ...found } of verdicts) {
    const target = readReference(ref)
    if (target === null) continue
    const one = inspected.get(keyOf(target)) ?? { target, version: versions.get(target.id) ?? 1, material: {} }
    if (found.wrong === null) one.material[kind] = { digest: found.digest, facts: found.facts }
    inspected.set(keyOf(target), one)
  }
  return [...inspected.values()]
}

export const keyOf = ({ kind, id }: Target): string => `${kind}/${id}`
