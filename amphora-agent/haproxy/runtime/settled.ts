/** HAProxy's flags if it waits neither for its former worker nor for its peers to teach it. */
const RESYNC_FINISHED = 0x3

/**
 * Whether a worker's stick tables would survive a reload: while it waits to be taught, it does not teach its
 * successor.
 * @param answer to `show peers` and `show table`
 */
export function isSettled(answer: string): boolean {
  const [, flags] = / flags=(0x[0-9a-f]+)/.exec(answer) ?? []
  const hasEntries = / used:[1-9]/.test(answer)
  return flags === undefined || !hasEntries || (Number(flags) & RESYNC_FINISHED) === RESYNC_FINISHED
}
