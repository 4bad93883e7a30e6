import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import type { ObservedAmphora } from './observation.js'
import { type Role, rolesOf } from './topology.js'

export type Replacement = { leaving: ObservedAmphora; successor: ObservedAmphora }

/** Which amphora of a load balancer has which role. It follows from rows and observations alone, so every worker comes to the same. */
export type RoleAssignment = {
  /** At most one for each role: they get the present configuration, and hold the VIP. */
  serving: ObservedAmphora[]
  /** Roles for which an amphora is to be allocated. */
  missing: Role[]
  /** What is under way: one at a time, so that of a pair one always serves undisturbed. */
  replacement: Replacement | null
  /** Nobody needs them any more. */
  superfluous: ObservedAmphora[]
}

/**
 * An amphora that is to be replaced serves until another has taken its role; but one that was never configured serves nothing, so it only goes.
 * First the replacement that has begun goes on, then what is broken is replaced, then what carries no traffic, so that the VIP of a pair
 * moves once.
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
      staying: foremost(ofRole.filter(amphora => !amphora.replacing)),
      leaving: foremost(ofRole.filter(amphora => amphora.replacing && amphora.appliedSha256 !== null)),
    }
  })
  const needed = parts.flatMap(({ staying, leaving }) => [staying, leaving])
  const superfluous = amphorae.filter(amphora => !needed.includes(amphora))
  const open = parts.filter(part => part.leaving !== undefined)
  const begun = open.find(part => part.staying !== undefined)
  const next =
    open.find(part => part.leaving !== undefined && isLost(part.leaving)) ??
    open.find(part => part.leaving?.heldVip === false) ??
    open[0]
  // One that has left goes altogether before the next begins to.
  const current = begun ?? (superfluous.length === 0 ? next : undefined)
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

/** It is to be replaced, and nothing can reach it: it neither takes a configuration nor is restarted. */
export const isLost = ({ replacing, machine, agent }: ObservedAmphora): boolean =>
  replacing && (machine !== 'running' || agent.state === 'unreachable')

/** It gave the VIP up and waits for its last connections: nobody has to wait for it. */
export const isDraining = ({ agent }: ObservedAmphora): boolean =>
  agent.state === 'answers' && agent.drain?.ended === false

const foremost = (amphorae: readonly ObservedAmphora[]): ObservedAmphora | undefined =>
  amphorae.find(amphora => amphora.status === 'ALLOCATED') ?? amphorae[0]
