/** Of HAProxy's flags: it waits neither for a former worker nor for its peers to teach it. */
const RESYNC_FINISHED = 0x3

/**
 * Whether the stick tables of a worker outlive a reload: one that still waits to be taught itself teaches its successor nothing.
 * @param answer to `show peers` and `show table`
 */
export function isSettled(answer: string): boolean {
  const [, flags] = / flags=(0x[0-9a-f]+)/.exec(answer) ?? []
  const hasEntries = / used:[1-9]/.test(answer)
  return flags === undefined || !hasEntries || (Number(flags) & RESYNC_FINISHED) === RESYNC_FINISHED
}
