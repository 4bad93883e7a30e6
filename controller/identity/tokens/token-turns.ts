import { createTurns } from '../../http/turns.js'
import type { Place } from '../../process/fair-queue.js'
import { tokenHash } from './store.js'

/** More tokens than are in use at a time. */
const MAX_KNOWN = 20_000

export type TokenTurns = {
  /**
   * Checks a token in its turn, which is its owner's or, while the owner is unknown, its source's.
   * @param placeOf the owner's place
   */
  check: <Found>(
    from: { token: string; source: string },
    find: (place: Place) => Promise<Found | null>,
    placeOf: (found: Found) => Place,
  ) => Promise<Found | null>
}

/** Remembers the owners of tokens only to place them in the queue. Validity is checked every time. */
export function createTokenTurns(): TokenTurns {
  const turns = createTurns()
  const places = new Map<string, Place>()

  const remember = (key: string, place: Place) => {
    places.delete(key)
    places.set(key, place)
    const [oldest] = places.keys()
    if (places.size > MAX_KNOWN && oldest !== undefined) places.delete(oldest)
  }

  return {
    check: async ({ token, source }, find, placeOf) => {
      const key = tokenHash(token).toString('base64')
      const place = places.get(key) ?? [`source ${source}`, key]
      const found = await turns.take(place, () => find(place))
      if (found === null) places.delete(key)
      else remember(key, placeOf(found))
      return found
    },
  }
}
