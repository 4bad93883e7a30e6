/** Time between two moments. */
export const MOMENT_MS = 3_000
/** A timer may fire this much early; the next moment is then the one after. */
const EARLY_MS = 100

/**
 * Milliseconds until the next moment. An idle agent does all its periodic work at shared moments: nearly all of its
 * cost is waking up with cold CPU caches.
 */
export const untilNextMoment = (now = performance.now()): number => {
  const left = MOMENT_MS - (now % MOMENT_MS)
  return left < EARLY_MS ? left + MOMENT_MS : left
}

/** Runs `act` at every moment. @returns a function that stops it */
export function atEveryMoment(act: () => void): () => void {
  const next = () => setTimeout(tick, untilNextMoment()).unref()
  const tick = () => {
    act()
    timer = next()
  }
  let timer = next()
  return () => clearTimeout(timer)
}
