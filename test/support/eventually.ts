/** Asks again and again until the answer is neither null, undefined nor false; throws after the limit. */
export async function eventually<T>(
  what: string,
  ask: () => Promise<T | null | undefined | false> | T | null | undefined | false,
  limitMs = 10_000,
): Promise<T> {
  const until = performance.now() + limitMs
  for (;;) {
    const answer = await ask()
    if (answer !== null && answer !== undefined && answer !== false) return answer
    if (performance.now() > until) throw new Error(`${what}: not within ${limitMs} ms`)
    await new Promise(resolve => setTimeout(resolve, 10))
  }
}
