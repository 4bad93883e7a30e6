import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import * as z from 'zod'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import { type Leaving, leavingSchema } from './leaving.js'

const FILE = `${STATE_DIRECTORY}/leaving.json`

/** The leaving servers, in a file, so that the next agent continues with them. */
export class LeavingStore {
  #servers = load()

  get servers(): readonly Leaving[] {
    return this.#servers
  }

  /** @returns whether they changed */
  keep(next: readonly Leaving[]): boolean {
    if (JSON.stringify(next) === JSON.stringify(this.#servers)) return false
    this.#servers = [...next]
    writeFileSync(`${FILE}.new`, JSON.stringify(next), { mode: 0o600 })
    renameSync(`${FILE}.new`, FILE)
    return true
  }
}

function load(): Leaving[] {
  try {
    return z.array(leavingSchema).parse(JSON.parse(readFileSync(FILE, 'utf8')))
  } catch {
    return []
  }
}
