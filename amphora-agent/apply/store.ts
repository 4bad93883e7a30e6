import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { challengesText } from '../haproxy/challenges.js'
import { IDLE_CONFIGURATION } from '../haproxy/haproxy.js'
import { type Desired, desiredSchema } from '../protocol/desired.js'
import { CHALLENGES_FILE, STATE_DIRECTORY } from '../protocol/paths.js'

/** Holds a directory for each configuration that is in use or under way. */
export const CONFIGURATIONS = `${STATE_DIRECTORY}/config`
const FENCE_FILE = `${STATE_DIRECTORY}/fence`

/** The files that HAProxy and keepalived read, whichever configuration is current. */
export const CURRENT_HAPROXY = `${CONFIGURATIONS}/current/haproxy.cfg`
export const CURRENT_KEEPALIVED = `${CONFIGURATIONS}/current/keepalived.conf`

/** A desired state in its own directory. */
export type Staged = {
  directory: string
  path: string
  desired: Desired
  haproxyFile: string | null
  keepalivedFile: string | null
}

/**
 * The agent's state, in files, so that a kill at any instant loses nothing.
 *
 * INVARIANTS: a directory is complete before a link points to it. `current` is what programs read, `confirmed` what
 * has taken effect. They differ only during an apply, so a difference at start means that an apply was interrupted.
 * A directory that neither link points to exists only between staging and activation, and until a rollback is
 * complete.
 */
export type Store = {
  /** The desired state in effect; null on a machine that has just started. */
  confirmed: () => Desired | null
  /** The directory of the confirmed state, and the one that programs read. */
  confirmedDirectory: () => string | null
  currentDirectory: () => string | null
  /** The state of an interrupted apply; null if there was none. */
  unfinished: () => Staged | null
  /**
   * A state staged but neither confirmed nor discarded, while `current` equals `confirmed`: programs may still run
   * it.
   */
  abandoned: () => Desired | null
  highestFence: () => number
  raiseFence: (fence: number) => void
  stage: (desired: Desired) => Staged
  activate: (staged: Staged) => void
  confirm: (staged: Staged) => void
  /** Points `current` back to the confirmed state; the staged directory stays until discard. */
  revert: () => void
  /** Reverts, and deletes the staged directory. */
  discard: () => void
  /**
   * Restores files that were changed or removed, from memory. Cheap if none were.
   * @returns a description of each repair
   */
  restore: () => string[]
}

export function openStore(): Store {
  mkdirSync(CONFIGURATIONS, { recursive: true, mode: 0o700 })
  let confirmed = readStaged(linkTarget('confirmed'))
  let current = readStaged(linkTarget('current')) ?? confirmed
  const fence = openFence()
  const intact = createIntactFiles()
  const revert = () => {
    current = confirmed
    if (confirmed === null) rmSync(`${CONFIGURATIONS}/current`, { force: true })
    else if (linkTarget('current') !== confirmed.directory) link('current', confirmed.directory)
  }

  return {
    confirmed: () => confirmed?.desired ?? null,
    confirmedDirectory: () => confirmed?.path ?? null,
    currentDirectory: () => current?.path ?? null,
    unfinished: readUnfinished,
    abandoned: readAbandoned,
    highestFence: fence.highest,
    raiseFence: fence.raise,
    stage,
    activate: staged => {
      link('current', staged.directory)
      current = staged
    },
    confirm: staged => {
      link('confirmed', staged.directory)
      confirmed = staged
      deleteUnlinked()
    },
    revert,
    discard: () => {
      revert()
      deleteUnlinked()
    },
    restore: () => {
      const restored = [
        ...[...new Set([confirmed, current])].flatMap(staged => restoreFiles(staged, intact)),
        ...restoreLink('confirmed', confirmed),
        ...restoreLink('current', current),
      ]
      fence.restore()
      return restored
    },
  }
}

function openFence() {
  let fence = Number(readText(FENCE_FILE) ?? 0)
  const write = () => {
    writeFileSync(`${FENCE_FILE}.new`, String(fence))
    renameSync(`${FENCE_FILE}.new`, FENCE_FILE)
  }
  return {
    highest: () => fence,
    raise: (value: number) => {
      if (value <= fence) return
      fence = value
      write()
    },
    /** Rewrites a missing file. */
    restore: () => {
      if (fence > 0 && !existsSync(FENCE_FILE)) write()
    },
  }
}

function readUnfinished(): Staged | null {
  const directory = linkTarget('current')
  return directory === null || directory === linkTarget('confirmed') ? null : readStaged(directory)
}

function readAbandoned(): Desired | null {
  const [newest] = unlinkedDirectories().sort((one, other) => Number(other) - Number(one))
  // Null also if staging was interrupted: an incomplete directory was never in use.
  return readStaged(newest ?? null)?.desired ?? null
}

function stage(desired: Desired): Staged {
  mkdirSync(CONFIGURATIONS, { recursive: true, mode: 0o700 })
  const numbers = readdirSync(CONFIGURATIONS).map(Number).filter(Number.isInteger)
  const directory = String(Math.max(0, ...numbers) + 1)
  const staged = toStaged(directory, desired)
  mkdirSync(`${CONFIGURATIONS}/${directory}`, { mode: 0o700 })
  for (const { path, text } of stagedFiles(staged)) writeFileSync(path, text(), { mode: 0o600 })
  return staged
}

/** @returns a description of each repair */
function restoreFiles(staged: Staged | null, intact: IntactFiles): string[] {
  if (staged === null) return []
  mkdirSync(`${CONFIGURATIONS}/${staged.directory}`, { recursive: true, mode: 0o700 })
  return stagedFiles(staged)
    .filter(intact.restore)
    .map(({ what }) => `${what} was changed or removed`)
}

/** @returns a description of the repair, if it had to make one */
function restoreLink(name: 'current' | 'confirmed', staged: Staged | null): string[] {
  if (staged === null || linkTarget(name) === staged.directory) return []
  link(name, staged.directory)
  return [`the link to the ${name} configuration was changed`]
}

type StagedFile = { what: string; path: string; text: () => string }

type IntactFiles = { restore: (file: StagedFile) => boolean }

/** Keeps files as last written. Does not read files that were not touched. */
function createIntactFiles(): IntactFiles {
  const known = new Map<string, string>()
  const signatureOf = (path: string): string | null => {
    const stat = statSync(path, { bigint: true, throwIfNoEntry: false })
    return stat ? `${stat.ino} ${stat.size} ${stat.mtimeNs} ${stat.ctimeNs}` : null
  }
  return {
    /** @returns whether it had to write the file */
    restore: ({ path, text }) => {
      const signature = signatureOf(path)
      if (signature !== null && known.get(path) === signature) return false
      const content = text()
      const changed = readText(path) !== content
      if (changed) {
        writeFileSync(`${path}.new`, content, { mode: 0o600 })
        renameSync(`${path}.new`, path)
      }
      if (known.size > 8) known.clear()
      known.set(path, signatureOf(path) ?? '')
      return changed
    },
  }
}

function toStaged(directory: string, desired: Desired): Staged {
  return {
    directory,
    path: `${CONFIGURATIONS}/${directory}`,
    desired,
    haproxyFile: desired.haproxy && `${CONFIGURATIONS}/${directory}/haproxy.cfg`,
    keepalivedFile: desired.keepalived && `${CONFIGURATIONS}/${directory}/keepalived.conf`,
  }
}

const desiredFile = (directory: string): string => `${CONFIGURATIONS}/${directory}/desired.json`

function stagedFiles({ directory, desired, keepalivedFile }: Staged): StagedFile[] {
  const { haproxy, keepalived } = desired
  const files: StagedFile[] = [
    { what: 'the desired state', path: desiredFile(directory), text: () => JSON.stringify(desired) },
  ]
  files.push({
    what: "HAProxy's file",
    path: `${CONFIGURATIONS}/${directory}/haproxy.cfg`,
    text: () => haproxy?.text ?? IDLE_CONFIGURATION,
  })
  files.push({
    what: 'the file of answers to challenges',
    path: `${CONFIGURATIONS}/${directory}/${CHALLENGES_FILE}`,
    text: () => challengesText(haproxy?.challenges),
  })
  if (keepalived && keepalivedFile) {
    files.push({ what: "keepalived's file", path: keepalivedFile, text: () => keepalived.text })
  }
  return files
}

/** @returns null if there is none or it is unreadable: the controller then sends it again */
function readStaged(directory: string | null): Staged | null {
  try {
    const text = directory === null ? null : readText(desiredFile(directory))
    return directory === null || text === null ? null : toStaged(directory, desiredSchema.parse(JSON.parse(text)))
  } catch {
    return null
  }
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

/** Directories that neither link points to. */
function unlinkedDirectories(): string[] {
  const named = new Set([linkTarget('current'), linkTarget('confirmed')])
  return readdirSync(CONFIGURATIONS).filter(entry => /^\d+$/.test(entry) && !named.has(entry))
}

function deleteUnlinked(): void {
  for (const entry of unlinkedDirectories()) rmSync(`${CONFIGURATIONS}/${entry}`, { recursive: true, force: true })
}
