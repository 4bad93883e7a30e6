import type { Parts } from '../apply/apply.js'
import { reload } from '../haproxy/transition.js'
import type { Repairs } from '../log/repairs.js'
import type { Desired } from '../protocol/desired.js'

/** How often what HAProxy has loaded is compared. */
const COMPARE_MS = 5_000
/** Pauses between attempts to read what is missing. */
const FIRST_RETRY_MS = 2_000
const LAST_RETRY_MS = 60_000

/** Keeps HAProxy's certificates as desired: their files, what HAProxy has loaded, their OCSP responses, and what could not be read yet. */
export class CertificateRepair {
  readonly #parts: Parts
  readonly #repairs: Repairs
  #comparedAt = Number.NEGATIVE_INFINITY
  #retryAt = 0
  #catchUpAt = 0
  #pauseMs = FIRST_RETRY_MS

  constructor(parts: Parts, repairs: Repairs) {
    this.#parts = parts
    this.#repairs = repairs
  }

  /** @throws Error if HAProxy does not answer; the next repair tries again */
  async repair({ haproxy: part }: Desired): Promise<void> {
    const { tls, haproxy, responses } = this.#parts
    if (part === null || !tls.isUsed()) return
    const changed = tls.changedFiles()
    if (changed.length > 0) {
      await this.#provide(part)
      this.#repairs.noteCertificate(`${changed.join(', ')}: changed or removed`)
    }
    await this.#readMissing(part)
    if (haproxy.pid() !== null && tls.isBehind() && performance.now() >= this.#catchUpAt) {
      this.#catchUpAt = performance.now() + LAST_RETRY_MS
      await this.#update(part)
      this.#repairs.note('HAProxy took over certificates that had changed before')
    }
    responses.tend(tls.served())
    if (haproxy.pid() !== null) await tls.staple()
    if (haproxy.pid() === null || performance.now() - this.#comparedAt < COMPARE_MS) return
    this.#comparedAt = performance.now()
    const found = await tls.repair()
    if (found.length > 0) this.#repairs.noteCertificate(found.join('; '))
  }

  /** Tries again at the next repair to read what is missing. */
  readMissingNow(): void {
    this.#retryAt = 0
    this.#pauseMs = FIRST_RETRY_MS
  }

  /** Tries to read what the key manager did not give out before, with growing pauses. */
  async #readMissing(part: NonNullable<Desired['haproxy']>): Promise<void> {
    const before = this.#parts.tls.missing().length
    if (before === 0) {
      this.#pauseMs = FIRST_RETRY_MS
      return
    }
    if (performance.now() < this.#retryAt) return
    this.#retryAt = performance.now() + this.#pauseMs
    this.#pauseMs = Math.min(2 * this.#pauseMs, LAST_RETRY_MS)
    await this.#provide(part)
    const left = this.#parts.tls.missing().length
    if (left < before) this.#repairs.note(`${before - left} certificates that were not available are now served`)
  }

  /** Writes the current configuration's TLS files again, and lets HAProxy use them. */
  async #provide(part: NonNullable<Desired['haproxy']>): Promise<void> {
    const { tls, store, haproxy } = this.#parts
    const directory = store.currentDirectory()
    if (directory === null) return
    await tls.provide(part, directory, directory)
    if (haproxy.pid() !== null) await this.#update(part)
  }

  async #update(part: NonNullable<Desired['haproxy']>): Promise<void> {
    const { tls } = this.#parts
    const update = await tls.update()
    if (typeof update !== 'object') return
    try {
      await reload(this.#parts, part, part, update.reload)
    } catch (error) {
      tls.forget()
      throw error
    }
  }
}
