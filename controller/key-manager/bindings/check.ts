import type { MaterialKind } from '../../../x509/material/load.js'
import { type RequestedReferences, readReference, type Target } from '../../../x509/material/reference.js'
import { type Checks, CheckTooSlow, checkUnavailable, type Verdict } from '../../inspection/checks.js'
import type { Place } from '../../process/fair-queue.js'
import { outsideTurn } from '../../process/turn.js'
import type { Service } from '../service.js'
import type { Bound, BoundMaterial } from './binding.js'
import { createStoredReader, type MayRead } from './stored-reader.js'

/** Why a reference cannot be used, or what it leads to. */
export type Checked = { ref: string; kind: MaterialKind } & ({ reason: string } | BoundMaterial)

/**
 * Checks what references lead to, in the key manager itself: nobody else needs to see a key for that.
 * @throws ApiError 400, 503
 */
export async function checkMaterial(
  service: Pick<Service, 'database' | 'keyring'> & { checks: Checks },
  place: Place,
  requested: RequestedReferences,
  mayRead: MayRead,
): Promise<{ checked: Checked[]; bound: Bound[] }> {
  const reader = createStoredReader(service, mayRead)
  const verdicts = await outsideTurn(() => service.checks.check(place, requested, () => reader)).catch(error => {
    if (!(error instanceof CheckTooSlow)) throw error
    throw checkUnavailable('The check of the certificate references took too long')
  })
  return { checked: verdicts.map(toChecked), bound: boundOf(verdicts) }
}

const toChecked = ({ ref, kind, ...found }: Verdict): Checked =>
  found.wrong === null ? { ref, kind, digest: found.digest, facts: found.facts } : { ref, kind, reason: found.wrong }

/** What usable references lead to, each object once. */
function boundOf(verdicts: readonly Verdict[]): Bound[] {
  const bound = new Map<string, Bound>()
  for (const { ref, kind, ...found } of verdicts) {
    const target = readReference(ref)
    if (found.wrong !== null || target === null) continue
    const one = bound.get(keyOf(target)) ?? { target, material: {} }
    one.material[kind] = { digest: found.digest, facts: found.facts }
    bound.set(keyOf(target), one)
  }
  return [...bound.values()]
}

export const keyOf = ({ kind, id }: Target): string => `${kind}/${id}`
