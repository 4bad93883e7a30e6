import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import { type Numbers, noNumbers, numbersSchema } from './numbers.js'

const FILE = `${STATE_DIRECTORY}/datagram-numbers.json`

/**
 * The numbers in a file, written before the kernel learns them. It is on a memory file system: connections do not
 * outlive a reboot either.
 */
export class NumberStore {
  #numbers = load()

  get numbers(): Numbers {
    return this.#numbers
  }

  keep(numbers: Numbers): void {
    const isSame = JSON.stringify(numbers) === JSON.stringify(this.#numbers)
    if (isSame && existsSync(FILE)) return
    writeFileSync(`${FILE}.new`, JSON.stringify(numbers), { mode: 0o600 })
    renameSync(`${FILE}.new`, FILE)
    this.#numbers = numbers
  }
}

function load(): Numbers {
  try {
    return numbersSchema.parse(JSON.parse(readFileSync(FILE, 'utf8')))
  } catch {
    return noNumbers()
  }
}
