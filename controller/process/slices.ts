import { setImmediate } from 'node:timers/promises'

/** Items per slice: about a millisecond's work. */
const SLICE_SIZE = 100

/** Visits many items and yields to the event loop after every slice. */
export async function eachInSlices<Item>(items: readonly Item[], visit: (item: Item) => void): Promise<void> {
  for (const [index, item] of items.entries()) {
    if (index > 0 && index % SLICE_SIZE === 0) await setImmediate()
    visit(item)
  }
}
