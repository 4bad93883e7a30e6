import { setImmediate } from 'node:timers/promises'

/** Items that are looked at without a pause: about a millisecond's work. */
const AT_A_TIME = 100

/** Visits each of many items, and lets whatever else is ready go first now and then. */
export async function eachInSlices<Item>(items: readonly Item[], visit: (item: Item) => void): Promise<void> {
  for (const [index, item] of items.entries()) {
    if (index > 0 && index % AT_A_TIME === 0) await setImmediate()
    visit(item)
  }
}
