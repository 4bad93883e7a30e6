import { setTimeout as delay } from 'node:timers/promises'
import { ApiRefusal, NoAnswer } from '../api-client.js'

const PAUSE_MS = 500

/**
 * Asks an API again and again until it has what is awaited. It may be away meanwhile, as while it restarts.
 * @param ask returns undefined while there is nothing yet
 * @param report gets a message each time the API begins to be away
 * @returns undefined if there is nothing after so many seconds
 * @throws NoAnswer, ApiRefusal if the API is away at the end
 */
export async function askUntil<T>(
  ask: () => Promise<T | undefined>,
  seconds: number,
  report: (message: string) => void,
): Promise<T | undefined> {
  const until = performance.now() + seconds * 1000
  for (let isAway = false; ; await delay(PAUSE_MS)) {
    const isLast = performance.now() > until
    try {
      const found = await ask()
      if (found !== undefined || isLast) return found
      isAway = false
    } catch (error) {
      if (isLast || !mayReturn(error)) throw error
      if (!isAway) report(`${error.message} Asking again.`)
      isAway = true
    }
  }
}

const mayReturn = (error: unknown): error is Error =>
  error instanceof NoAnswer || (error instanceof ApiRefusal && error.status === 503)
