/** How much further each day begins in a list. As many files start in time on a slow machine. */
const STEP = 3

/**
 * The order for a day on which not all of a list may run: each day begins with another file, and within days all have had
 * their turn.
 * @param day counted from any day
 */
export function inTurn(list, day) {
  const first = list.length === 0 ? 0 : (day * STEP) % list.length
  return [...list.slice(first), ...list.slice(0, first)]
}
