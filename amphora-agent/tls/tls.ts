import { existsSync, readFileSync } from 'node:fs'
import type { Haproxy } from '../haproxy/haproxy.js'
import type { Log } from '../log/log.js'
import type { HaproxyPart } from '../protocol/desired.js'
import type { MissingMaterial } from '../protocol/messages.js'
import { changedFiles, type Manifest, NO_TLS, provideTls, pruneStore, readManifest } from './files.js'
import type { KeyManager } from './key-manager.js'
import { expectedOf, isUnused, parseList, parseLoaded, SHOW } from './observed.js'
import { changedBetween, kindOf, planTlsUpdate, setCommands, type TlsCommand, type TlsState } from './plan-update.js'

export type TlsOptions = {
  keyManager: KeyManager
  haproxy: Pick<Haproxy, 'command'>
  /** The directory that HAProxy reads; null without one. */
  current: () => string | null
  log: Log
}

/** HAProxy's certificates, CAs and revocation lists: their files, and what HAProxy has loaded of them. */
export class Tls {
  readonly #options: TlsOptions
  /** What HAProxy has loaded; null if it is unknown, because an earlier agent started it. */
  #loaded: TlsState | null = null

  constructor(options: TlsOptions) {
    this.#options = options
  }

  /** Writes the TLS files of a new configuration. HAProxy does not read them yet. */
  provide(haproxy: HaproxyPart | null, directory: string, former: string | null): Promise<Manifest> {
    return provideTls(this.#options.keyManager, haproxy ?? {}, directory, former)
  }

  /** Call before HAProxy reads its files. */
  noteRead(): void {
    this.#loaded = this.#manifest()
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
    const loaded = this.#loaded ?? desired
    const directory = current()
    const commands = planTlsUpdate(loaded, desired, path => readFileSync(`${directory}/${path}`, 'utf8'))
    if (typeof commands === 'string') return { reload: commands }
    if (commands.length === 0) {
      this.#loaded = desired
      return 'unchanged'
    }
    const failure = (await this.#detached(changedBetween(loaded, desired))) ?? (await this.#run(commands))
    if (failure !== null) return { reload: failure }
    this.#loaded = desired
    return 'runtime'
  }

  /**
   * Compares what HAProxy has loaded with the current files, and takes back what differs.
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
      if (JSON.stringify(loaded) === JSON.stringify(expected)) continue
      found.push(`HAProxy had another certificate in place of ${path}`)
      commands.push(...setCommands(path, content))
    }
    for (const [path, certificates] of Object.entries(lists)) {
      const loaded = parseList(await this.#options.haproxy.command(SHOW.list(path)))
      for (const name of certificates.filter(one => !loaded.includes(one))) {
        found.push(`HAProxy lacked the certificate ${name}`)
        commands.push({ text: `add ssl crt-list ${path} ${name}`, expect: 'Success!' })
      }
    }
    const failure = await this.#run(commands)
    return failure === null ? found : [...found, failure]
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
    for (const { text, expect } of commands) {
      const answer = await this.#options.haproxy.command(text)
      // Only the first line may be shown: the rest is a key.
      const [what = ''] = text.split('\n')
      if (!answer.includes(expect)) return `HAProxy answered "${answer.trim().slice(0, 200)}" to "${what}"`
    }
    return null
  }

  #manifest(): Manifest {
    const directory = this.#options.current()
    return directory === null || !existsSync(directory) ? NO_TLS : readManifest(directory)
  }
}
