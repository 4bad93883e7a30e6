import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { onEveryTick } from '../time/ticks.js'

/** Far more than an agent needs. */
const MOST_HEAP_BYTES = 256 * 1024 * 1024

/**
 * Keeps the heap of the main thread small, and ends the process if that heap keeps growing: it is looked at with each tick.
 * Options of V8 on the command line would set a limit for each instant, but with any of them Node.js compiles its own
 * modules anew, which takes a fifth of the start. Call it once all modules are loaded.
 */
export function limitHeap(): void {
  // Objects that live for a moment get one or two MiB, not 32.
  setFlagsFromString('--semi-space-growth-factor=1')
  setFlagsFromString('--optimize-for-size')
  onEveryTick(() => {
    const { used_heap_size: used } = getHeapStatistics()
    if (used <= MOST_HEAP_BYTES) return
    console.error(`amphora agent: its heap has ${used} bytes; it ends, to start again`)
    process.exit(1)
  })
}
