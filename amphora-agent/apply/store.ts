import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { IDLE_CONFIGURATION } from '../haproxy/haproxy.js'
import { type Desired, desiredSchema } from '../protocol/desired.js'
import { STATE_DIRECTORY } from '../protocol/paths.js'

const CONFIGURATIONS = `${STATE_DIRECTORY}/config`
const FENCE_FILE = `${STATE_DIRECTORY}/fence`

/** What HAProxy and keepalived read, whichever configuration is the current one. */
export const CURRENT_HAPROXY = `${CONFIGURATIONS}/current/haproxy.cfg`
export const CURRENT_KEEPALIVED = `${CONFIGURATIONS}/current/keepalived.conf`

/** A desired state on its way: in a directory of its own, not yet in use. */
export type Staged = { directory: string; haproxyFile: string | null; keepalivedFile: string | null }

/**
 * The agent's memory, in files, so that a kill at any instant loses nothing.
 *
 * INVARIANTS: a directory is complete before a link names it. `current` is what programs read, `confirmed` what was seen to be in effect;
 * they differ only while an apply is under way, so a difference at start means that it was cut off. A directory that neither names is
 * there only between staging and that, and until a roll back is complete.
 */
export type Store = {
  /** The desired state that is in effect, null on a machine that has just started. */
  confirmed: () => Desired | null
  /** The state of an apply that was cut off; null when there was none. */
  unfinished: () => (Staged & { desired: Desired }) | null
  /** A state that was staged and neither confirmed nor discarded, while `current` is what is confirmed: programs may still run it. */
  abandoned: () => Desired | null
  highestFence: () => number
  raiseFence: (fence: number) => void
  stage: (desired: Desired) => Staged
  activate: (staged: Staged) => void
  confirm: (staged: Staged, desired: Desired) => void
  /** Lets programs read what is confirmed again; the staged directory stays until discard. */
  revert: () => void
  /** Back to what is confirmed; forgets the staged directory. */
  discard: () => void
}

export function openStore(): Store {
  mkdirSync(CONFIGURATIONS, { recursive: true, mode: 0o700 })
  let confirmed = readDesired(linkTarget('confirmed'))
  let fence = Number(readText(FENCE_FILE) ?? 0)
  const revert = () => {
    const before = linkTarget('confirmed')
    if (before === null) rmSync(`${CONFIGURATIONS}/current`, { force: true })
    else if (linkTarget('current') !== before) link('current', before)
  }

  return {
    confirmed: () => confirmed,
    unfinished: () => {
      const directory = linkTarget('current')
      if (directory === null || directory === linkTarget('confirmed')) return null
      const desired = readDesired(directory)
      return desired && { ...filesOf(directory, desired), desired }
    },
    abandoned: () => {
      const [newest] = unnamed().sort((one, other) => Number(other) - Number(one))
      try {
        return newest === undefined ? null : readDesired(newest)
      } catch {
        // Staging was cut off: what is incomplete was never in use.
        return null
      }
    },
    highestFence: () => fence,
    raiseFence: value => {
      if (value <= fence) return
      fence = value
      writeFileSync(`${FENCE_FILE}.new`, String(value))
      renameSync(`${FENCE_FILE}.new`, FENCE_FILE)
    },
    stage: desired => {
      const numbers = readdirSync(CONFIGURATIONS).map(Number).filter(Number.isInteger)
      const directory = String(Math.max(0, ...numbers) + 1)
      const staged = filesOf(directory, desired)
      mkdirSync(`${CONFIGURATIONS}/${directory}`, { mode: 0o700 })
      write(`${CONFIGURATIONS}/${directory}/haproxy.cfg`, desired.haproxy?.text ?? IDLE_CONFIGURATION)
      if (desired.keepalived) write(staged.keepalivedFile, desired.keepalived.text)
      write(desiredFile(directory), JSON.stringify(desired))
      return staged
    },
    activate: staged => link('current', staged.directory),
    confirm: (staged, desired) => {
      link('confirmed', staged.directory)
      confirmed = desired
      sweep()
    },
    revert,
    discard: () => {
      revert()
      sweep()
    },
  }
}

function filesOf(directory: string, desired: Desired): Staged {
  return {
    directory,
    haproxyFile: desired.haproxy && `${CONFIGURATIONS}/${directory}/haproxy.cfg`,
    keepalivedFile: desired.keepalived && `${CONFIGURATIONS}/${directory}/keepalived.conf`,
  }
}

const desiredFile = (directory: string): string => `${CONFIGURATIONS}/${directory}/desired.json`

function write(path: string | null, text: string): void {
  if (path !== null) writeFileSync(path, text, { mode: 0o600 })
}

function readDesired(directory: string | null): Desired | null {
  const text = directory === null ? null : readText(desiredFile(directory))
  return text === null ? null : desiredSchema.parse(JSON.parse(text))
}

function readText(path: string): string | null {
  return existsSync(path) ? readFileSync(path, 'utf8') : null
}

function linkTarget(name: 'current' | 'confirmed'): string | null {
  try {
    return readlinkSync(`${CONFIGURATIONS}/${name}`)
  } catch {
    return null
  }
}

function link(name: 'current' | 'confirmed', directory: string): void {
  const fresh = `${CONFIGURATIONS}/${name}.new`
  rmSync(fresh, { force: true })
  symlinkSync(directory, fresh)
  renameSync(fresh, `${CONFIGURATIONS}/${name}`)
}

/** Directories that neither link names. */
function unnamed(): string[] {
  const named = new Set([linkTarget('current'), linkTarget('confirmed')])
  return readdirSync(CONFIGURATIONS).filter(entry => /^\d+$/.test(entry) && !named.has(entry))
}

function sweep(): void {
  for (const entry of unnamed()) rmSync(`${CONFIGURATIONS}/${entry}`, { recursive: true, force: true })
}
