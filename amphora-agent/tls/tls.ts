import { existsSync, readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import type { Haproxy } from '../haproxy/haproxy.js'
import type { Log } from '../log/log.js'
import type { HaproxyPart } from '../protocol/desired.js'
import type { MissingMaterial } from '../protocol/messages.js'
import { changedFiles, type Manifest, NO_TLS, provideTls, pruneStore, readManifest } from './files.js'
import type { KeyManager } from './key-manager.js'
import { readLoaded, statesOf, writeLoaded } from './loaded-file.js'
import { expectedOf, isSame, isUnused, openTransaction, parseList, parseLoaded, SHOW, SHOW_ALL } from './observed.js'
import {
  addCommand,
  changedBetween,
  fitsRuntime,
  kindOf,
  planStaples,
  planTlsUpdate,
  removeCommand,
  type Staples,
  setCommands,
  type TlsCommand,
  type TlsState,
} from './plan-update.js'
import { servedCertificates, writeStaples } from './staple-files.js'

export type TlsOptions = {
  keyManager: KeyManager
  haproxy: Pick<Haproxy, 'command'>
  /** The directory that HAProxy reads; null without one. */
  current: () => string | null
  /** The OCSP response for the certificate of a file, if there is one. */
  stapleFor: (pem: string) => Buffer | null
  log: Log
}

/** HAProxy's certificates, CAs and revocation lists: their files, and what HAProxy has loaded of them. */
export class Tls {
  readonly #options: TlsOptions
  /** What HAProxy has loaded, as it was noted; null if unknown. */
  #loaded: TlsState | null
  /** The OCSP responses that HAProxy has loaded; null if unknown. */
  #stapled: Staples | null = null
  #stapleFailure: string | null = null
  /** Whether HAProxy may have begun to take a file over: an earlier agent died, or a command failed. */
  #isOpen = true

  constructor(options: TlsOptions) {
    this.#options = options
    const noted = readLoaded()
    // An earlier version of the agent noted nothing.
    this.#loaded = noted === undefined ? this.#manifest() : noted
  }

  /** Writes the TLS files of a new configuration. HAProxy does not read them yet. */
  async provide(haproxy: HaproxyPart | null, directory: string, former: string | null): Promise<void> {
    const manifest = await provideTls(this.#options.keyManager, haproxy ?? {}, directory, former)
    writeStaples(directory, manifest, this.#options.stapleFor)
  }

  /** Call before HAProxy reads its files. */
  noteRead(): void {
    this.#noteLoaded(this.#manifest())
    this.#stapled = this.#writeStaples()
  }

  /** HAProxy may not have read them after all: the next update reloads. */
  forget(): void {
    this.#noteLoaded(null)
  }

  /** Whether HAProxy has loaded something else than the current files: an update failed, or the agent died before one. */
  isBehind(): boolean {
    const { files, lists } = this.#manifest()
    return this.#loaded === null || !isDeepStrictEqual({ files, lists }, statesOf(this.#loaded))
  }

  /** Whether the current configuration has any. */
  isUsed(): boolean {
    return Object.keys(this.#manifest().files).length > 0
  }

  /** What the current configuration misses. */
  missing(): MissingMaterial[] {
    return this.#manifest().missing
  }

  /**
   * Makes HAProxy use the current files without a reload.
   * @returns `unchanged`, `runtime`, or why only a reload can do it
   */
  async update(): Promise<'unchanged' | 'runtime' | { reload: string }> {
    const { current } = this.#options
    const desired = this.#manifest()
    const loaded = this.#loaded
    if (loaded === null) return { reload: 'what HAProxy has loaded is unknown' }
    const directory = current()
    const contentOf = (path: string) => readFileSync(`${directory}/${path}`, 'utf8')
    const staples = this.#writeStaples()
    const commands = planTlsUpdate(loaded, desired, contentOf, path => staples.get(path) ?? null)
    if (typeof commands === 'string') return { reload: commands }
    if (commands.length === 0) {
      this.#noteLoaded(desired)
      return 'unchanged'
    }
    const failure = (await this.#detached(changedBetween(loaded, desired))) ?? (await this.#run(commands))
    if (failure !== null) return { reload: failure }
    this.#stapled = withStaplesOf(this.#stapled, staples, path => loaded.files[path] !== desired.files[path])
    this.#noteLoaded(desired)
    return 'runtime'
  }

  /** The files with certificates that clients get to see: their content. */
  served(): string[] {
    const directory = this.#options.current()
    return directory === null ? [] : [...servedCertificates(directory, this.#manifest()).values()]
  }

  /**
   * Makes HAProxy staple the OCSP responses that there are now, and no others. A failure is logged: everything else is
   * served, and the next call tries again.
   */
  async staple(): Promise<void> {
    const directory = this.#options.current()
    if (directory === null) return
    const desired = this.#writeStaples()
    const commands = planStaples(this.#stapled, desired, path => readFileSync(`${directory}/${path}`, 'utf8'))
    const failure = await this.#run(commands)
    // After a failure nothing is known, so the next call sets all of them.
    this.#stapled = failure === null ? desired : null
    if (failure !== null && failure !== this.#stapleFailure)
      this.#options.log.warn(`cannot staple OCSP responses: ${failure}`)
    this.#stapleFailure = failure
  }

  /**
   * Compares what HAProxy has loaded with the current files, and takes back what differs. What only a reload can take
   * back leaves HAProxy behind.
   * @returns a sentence about each difference
   * @throws Error if HAProxy does not answer
   */
  async repair(): Promise<string[]> {
    const directory = this.#options.current()
    if (directory === null) return []
    const { files, lists } = this.#manifest()
    const found: string[] = []
    const commands: TlsCommand[] = []
    for (const path of Object.keys(files).filter(name => name.endsWith('.pem'))) {
      const kind = kindOf(path)
      // HAProxy does not show enough of a revocation list to compare it.
      if (kind === 'crl-file') continue
      const content = readFileSync(`${directory}/${path}`, 'utf8')
      const expected = expectedOf(content, kind === 'cert')
      const loaded = parseLoaded(await this.#options.haproxy.command(SHOW[kind](path)))
      if (isSame(loaded, expected)) continue
      found.push(`HAProxy had another certificate in place of ${path}`)
      if (!fitsRuntime(content)) {
        this.forget()
        continue
      }
      const staple = this.#stapled?.get(path) ?? null
      commands.push(...setCommands(path, content, kind === 'cert' ? staple : null))
    }
    for (const [path, certificates] of Object.entries(lists)) {
      const loaded = parseList(await this.#options.haproxy.command(SHOW.list(path)))
      for (const name of certificates.filter(one => !loaded.includes(one))) {
        found.push(`HAProxy lacked the certificate ${name}`)
        commands.push(addCommand(path, name))
      }
      for (const name of loaded.filter(one => !certificates.includes(one))) {
        found.push(`HAProxy served the certificate ${name}, which is not the listener's`)
        commands.push(removeCommand(path, name))
      }
    }
    const failure = await this.#run(commands)
    if (failure === null) return found
    this.forget()
    return [...found, failure]
  }

  /** Files that were changed or removed. */
  changedFiles(): string[] {
    const directory = this.#options.current()
    return directory === null ? [] : changedFiles(directory, this.#manifest())
  }

  /** Deletes material that neither of these directories needs. */
  prune(directories: readonly string[]): void {
    pruneStore(directories.map(readManifest))
  }

  /**
   * HAProxy 2.6 loses the link between a certificate and its listeners when it exchanges their CA or revocation list. It
   * would then take another certificate, say so, and go on serving the former one.
   * @returns which certificate that concerns; null if none
   */
  async #detached(changed: readonly string[]): Promise<string | null> {
    for (const path of changed.filter(one => kindOf(one) === 'cert')) {
      if (isUnused(await this.#options.haproxy.command(SHOW.cert(path))))
        return `HAProxy exchanged a CA or revocation list beside ${path} before`
    }
    return null
  }

  /** @returns why a command failed; null if all succeeded */
  async #run(commands: readonly TlsCommand[]): Promise<string | null> {
    if (commands.length === 0) return null
    if (this.#isOpen) await this.#abort()
    this.#isOpen = true
    for (const { text, expect } of commands) {
      const answer = await this.#options.haproxy.command(text)
      // Only the first line may be shown: the rest is a key.
      const [what = ''] = text.split('\n')
      if (!answer.includes(expect)) return `HAProxy answered "${answer.trim().slice(0, 200)}" to "${what}"`
    }
    this.#isOpen = false
    return null
  }

  /** Ends transactions that were not committed: HAProxy takes one file of a kind at a time. */
  async #abort(): Promise<void> {
    const { haproxy } = this.#options
    for (const [kind, show] of Object.entries(SHOW_ALL)) {
      const path = openTransaction(await haproxy.command(show))
      if (path !== null) await haproxy.command(`abort ssl ${kind} ${path}`)
    }
  }

  #noteLoaded(state: TlsState | null): void {
    this.#loaded = state
    writeLoaded(state)
  }

  #writeStaples(): Staples {
    const directory = this.#options.current()
    return directory === null ? new Map() : writeStaples(directory, this.#manifest(), this.#options.stapleFor)
  }

  #manifest(): Manifest {
    const directory = this.#options.current()
    return directory === null || !existsSync(directory) ? NO_TLS : readManifest(directory)
  }
}

/** What is stapled once these files are set anew, with the responses they now have. */
function withStaplesOf(loaded: Staples | null, desired: Staples, isSet: (path: string) => boolean): Staples | null {
  if (loaded === null) return null
  const kept = [...loaded].filter(([path]) => !isSet(path))
  return new Map([...kept, ...[...desired].filter(([path]) => isSet(path))])
}
