/** Between two moments. */
export const MOMENT_MS = 3_000
/** A timer may fire a little early: then the moment after is meant. */
const EARLY_MS = 100

/**
 * Milliseconds until the next moment. What an idle agent does again and again, it does at the same moments: nearly all that it costs is waking
 * up, with nothing of it in the processor's caches.
 */
export const untilNextMoment = (now = performance.now()): number => {
  const left = MOMENT_MS - (now % MOMENT_MS)
  return left < EARLY_MS ? left + MOMENT_MS : left
}

/** Does something at every moment. @returns a function that ends it */
export function atEveryMoment(act: () => void): () => void {
  const next = () => setTimeout(tick, untilNextMoment()).unref()
  const tick = () => {
    act()
    timer = next()
  }
  let timer = next()
  return () => clearTimeout(timer)
}
