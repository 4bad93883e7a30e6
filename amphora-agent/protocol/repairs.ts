/** What of the desired state an amphora cannot bring about by itself. The order is that of the bits in a beat: new ones come last. */
export const MISMATCHES = ['interface', 'address', 'route', 'filter', 'haproxy', 'keepalived', 'disk'] as const

export type Mismatch = (typeof MISMATCHES)[number]

/**
 * What an amphora does without being asked: `repaired` something that had come to differ from the desired state, or `closed` connections because
 * a limit was reached. The order is that of their numbers in a report: new ones come last.
 */
export const REPAIR_KINDS = ['repaired', 'closed'] as const

/** One such action. */
export type Repair = {
  kind: (typeof REPAIR_KINDS)[number]
  /** When, in milliseconds since 1970; every repair of an amphora has a later time than the one before, which tells them apart. */
  atMs: number
  /** One line for the history, of at most LONGEST_REPAIR characters of ASCII. */
  text: string
}

export const LONGEST_REPAIR = 120

/** One line in the bounds of a Repair, whatever the text is. */
export const repairText = (text: string): string => text.replaceAll(/[^ -~]+/g, ' ').slice(0, LONGEST_REPAIR)
