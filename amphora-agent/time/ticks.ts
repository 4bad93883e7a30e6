/** Time between two ticks. */
export const TICK_MS = 3_000
/** A timer may fire this much early; the next tick is then the one after. */
const EARLY_MS = 100

/**
 * Milliseconds until the next tick. An idle agent does all its periodic work at shared ticks: nearly all of its
 * cost is waking up with cold CPU caches.
 */
export const untilNextTick = (now = performance.now()): number => {
  const left = TICK_MS - (now % TICK_MS)
  return left < EARLY_MS ? left + TICK_MS : left
}

/** Runs `act` at every tick. @returns a function that stops it */
export function onEveryTick(act: () => void): () => void {
  const next = () => setTimeout(tick, untilNextTick()).unref()
  const tick = () => {
    act()
    timer = next()
  }
  let timer = next()
  return () => clearTimeout(timer)
}
