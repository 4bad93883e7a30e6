/**
 * How long to rest after a check, in ms: twice as long as it took, but at most 200 ms. A check that starts processes would
 * otherwise slow down what it waits for.
 * @param shortest the shortest rest, in ms
 */
export const restAfter = (tookMs: number, shortest = 10): number => Math.max(Math.min(2 * tookMs, 200), shortest)

/** Repeats a check until its result is neither null, undefined nor false. @throws Error after the limit */
export async function eventually<T>(
  what: string,
  ask: () => Promise<T | null | undefined | false> | T | null | undefined | false,
  limitMs = 10_000,
  shortestRestMs = 10,
): Promise<T> {
  const until = performance.now() + limitMs
  for (;;) {
    const begun = performance.now()
    const answer = await ask()
    if (answer !== null && answer !== undefined && answer !== false) return answer
    const now = performance.now()
    if (now > until) throw new Error(`${what}: not within ${limitMs} ms`)
    await new Promise(resolve => setTimeout(resolve, restAfter(now - begun, shortestRestMs)))
  }
}
