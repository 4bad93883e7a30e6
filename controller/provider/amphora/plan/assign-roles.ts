import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import type { ObservedAmphora } from './observation.js'
import { type Role, rolesOf } from './topology.js'

export type Replacement = { leaving: ObservedAmphora; successor: ObservedAmphora }

/** The amphorae of a load balancer by role. Derived only from rows and observations, so every worker gets the same. */
export type RoleAssignment = {
  /** At most one per role. They get the current configuration and hold the VIP. */
  serving: ObservedAmphora[]
  /** Roles that need a new amphora. */
  missing: Role[]
  /** The replacement in progress: one at a time, so that one amphora of a pair always serves undisturbed. */
  replacement: Replacement | null
  /** Amphorae to remove. */
  superfluous: ObservedAmphora[]
}

/**
 * An amphora marked for replacement serves until another has taken its role. One that was never configured serves
 * nothing and is removed. Order: the replacement in progress, then lost amphorae, then the one without the VIP,
 * so that the VIP of a pair moves only once.
 */
export function assignRoles(
  topology: LoadBalancerTree['topology'],
  amphorae: readonly ObservedAmphora[],
): RoleAssignment {
  const usable = amphorae.filter(amphora => amphora.status !== 'PENDING_DELETE')
  const parts = rolesOf(topology).map(role => {
    const ofRole = usable.filter(amphora => amphora.role === role)
    return {
      role,
      staying: preferred(ofRole.filter(amphora => !amphora.replacing)),
      leaving: preferred(ofRole.filter(amphora => amphora.replacing && amphora.appliedSha256 !== null)),
    }
  })
  const needed = parts.flatMap(({ staying, leaving }) => [staying, leaving])
  const superfluous = amphorae.filter(amphora => !needed.includes(amphora))
  const pending = parts.filter(part => part.leaving !== undefined)
  const inProgress = pending.find(part => part.staying !== undefined)
  const next =
    pending.find(part => part.leaving !== undefined && isLost(part.leaving)) ??
    pending.find(part => part.leaving?.heldVip === false) ??
    pending[0]
  // The next replacement starts only after the previous amphora has been removed.
  const current = inProgress ?? (superfluous.length === 0 ? next : undefined)
  return {
    serving: parts.flatMap(({ staying, leaving }) => leaving ?? staying ?? []),
    missing: parts
      .filter(part => part.staying === undefined && (part.leaving === undefined || part === current))
      .map(part => part.role),
    replacement:
      current?.leaving === undefined || current.staying === undefined
        ? null
        : { leaving: current.leaving, successor: current.staying },
    superfluous,
  }
}

/** Marked for replacement, and its agent cannot be used: it gets no configuration and is not restarted. */
export const isLost = ({ replacing, machine, agent }: ObservedAmphora): boolean =>
  replacing && (machine !== 'running' || agent.state !== 'answers')

/** It gave up the VIP and is waiting for its last connections; nothing waits for it. */
export const isDraining = ({ agent }: ObservedAmphora): boolean =>
  agent.state === 'answers' && agent.drain?.ended === false

const preferred = (amphorae: readonly ObservedAmphora[]): ObservedAmphora | undefined =>
  amphorae.find(amphora => amphora.status === 'ALLOCATED') ?? amphorae[0]
