/** A hypervisor, and the last change of the northbound database that its switch has. */
export type ChassisState = { name: string; hostname: string; change: number }

/** How far a change has come. */
export type Progress = {
  /** Whether northd has worked it out. */
  isComputed: boolean
  /** Those that do not have it yet, and are waited for. */
  behind: ChassisState[]
  /** Those that have missed an earlier change too: nobody waits for them. They catch up when they are back. */
  away: ChassisState[]
  /** Whether at least one has it: without any, nobody carries it out. */
  isCarriedOut: boolean
}

/**
 * Says how far a change has come.
 * @param computed `nb_cfg` of the southbound database
 * @param missed by chassis: a change that it did not have in time
 */
export function progressOf(
  change: number,
  computed: number,
  chassis: readonly ChassisState[],
  missed: ReadonlyMap<string, number>,
): Progress {
  const late = chassis.filter(one => isBehind(one, change))
  const isAway = ({ name, change: has }: ChassisState) => has < (missed.get(name) ?? Number.NEGATIVE_INFINITY)
  return {
    isComputed: computed >= change,
    behind: late.filter(one => !isAway(one)),
    away: late.filter(isAway),
    isCarriedOut: late.length < chassis.length,
  }
}

/** Whether a hypervisor lacks a change. */
export const isBehind = ({ change: has }: ChassisState, change: number): boolean => has < change

/** Whether all that are not away have a change. */
export const isInstalled = ({ isComputed, behind, isCarriedOut }: Progress): boolean =>
  isComputed && isCarriedOut && behind.length === 0
