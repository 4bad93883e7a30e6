import { setTimeout as pause } from 'node:timers/promises'

/** Calls the probe every `everyMs` until it returns a value. @returns null if it does not within `timeoutMs` */
export async function waitFor<T>(
  probe: () => T | null | Promise<T | null>,
  { timeoutMs, everyMs = 20 }: { timeoutMs: number; everyMs?: number },
): Promise<T | null> {
  const end = performance.now() + timeoutMs
  for (;;) {
    const value = await probe()
    if (value !== null) return value
    if (performance.now() >= end) return null
    await pause(everyMs)
  }
}
