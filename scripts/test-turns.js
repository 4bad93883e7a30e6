/** How much further in a list each day begins. */
const STEP = 3

/**
 * The order of a list on a day when only its beginning may run. Each day begins elsewhere, so that all have their turn.
 * @param day number of the day, counted from any
 */
export function inTurn(list, day) {
  const first = list.length === 0 ? 0 : (day * STEP) % list.length
  return [...list.slice(first), ...list.slice(0, first)]
}
