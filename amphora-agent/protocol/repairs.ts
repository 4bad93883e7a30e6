/**
 * Parts of the desired state that an amphora cannot restore by itself, in the order of the bits in a beat: append
 * new ones.
 */
export const MISMATCHES = ['interface', 'address', 'route', 'filter', 'haproxy', 'keepalived', 'disk'] as const

export type Mismatch = (typeof MISMATCHES)[number]

/**
 * What an amphora does on its own: `repaired` something that differed from the desired state, or `closed` connections
 * because a limit was reached, or took back a `certificate` that somebody else had put in place of the right one. In the
 * order of their codes in a report: append new ones.
 */
export const REPAIR_KINDS = ['repaired', 'closed', 'certificate'] as const

/** One such action. */
export type Repair = {
  kind: (typeof REPAIR_KINDS)[number]
  /** Milliseconds since 1970. Strictly increasing per amphora, so it identifies the repair. */
  atMs: number
  /** One line for the history, at most MAX_REPAIR_LENGTH ASCII characters. */
  text: string
}

export const MAX_REPAIR_LENGTH = 120

/** Makes any text a valid line of a Repair. */
export const repairText = (text: string): string => text.replaceAll(/[^ -~]+/g, ' ').slice(0, MAX_REPAIR_LENGTH)
