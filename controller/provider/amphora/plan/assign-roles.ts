import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import type { AmphoraSight } from './observation.js'
import { type Role, rolesOf } from './topology.js'

export type Replacement = { leaving: AmphoraSight; successor: AmphoraSight }

/** Who of a load balancer's amphorae does what. Follows from rows and sight alone, so that any worker sees the same. */
export type Cast = {
  /** At most one for each role: they get the present configuration, and hold the VIP. */
  serving: AmphoraSight[]
  /** Roles for which an amphora is to be allocated. */
  missing: Role[]
  /** What is under way: one at a time, so that of a pair one always serves undisturbed. */
  replacement: Replacement | null
  /** Nobody needs them any more. */
  superfluous: AmphoraSight[]
}

/**
 * An amphora that is to be replaced serves until another has taken its role; but one that was never configured serves nothing, so it only goes.
 * First the replacement that has begun goes on, then what is broken is replaced, then what carries no traffic, so that the VIP of a pair
 * moves once.
 */
export function assignRoles(topology: LoadBalancerTree['topology'], amphorae: readonly AmphoraSight[]): Cast {
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

/** Neither can be told anything nor is made again: it is to be replaced. */
export const isLost = ({ replacing, machine, agent }: AmphoraSight): boolean =>
  replacing && (machine !== 'running' || agent.state === 'unreachable')

/** It gave the VIP up and waits for its last connections: nobody has to wait for it. */
export const isDraining = ({ agent }: AmphoraSight): boolean =>
  agent.state === 'answers' && agent.drain?.ended === false

const foremost = (amphorae: readonly AmphoraSight[]): AmphoraSight | undefined =>
  amphorae.find(amphora => amphora.status === 'ALLOCATED') ?? amphorae[0]
