import { createHash } from 'node:crypto'
import { whatIsWrong } from '../../x509/material/material.js'
import { pemBlocks } from '../../x509/material/pem-blocks.js'
import { type OcspQuestion, readOcspQuestion } from '../../x509/ocsp/certificate-id.js'
import { writeOcspRequest } from '../../x509/ocsp/request.js'
import { type OcspResponse, readOcspResponse } from '../../x509/ocsp/response.js'
import type { Log } from '../log/log.js'
import { fetchResponse, NoResponse } from './fetch.js'
import { type Asked, isServable, nextAt } from './schedule.js'
import { pruneStored, readStored, writeStored } from './store.js'

/** Each is a process for up to ten seconds. */
const MAX_AT_ONCE = 2
/** In base64 it must fit into one of HAProxy's buffers. */
const MAX_STAPLE_BYTES = 10_000

/** What is known about one certificate that names a responder. */
type Subject = {
  /** SHA-256 over the certificate and its issuer. */
  digest: string
  question: OcspQuestion
  held: { bytes: Buffer; response: OcspResponse } | null
  asked: Asked | null
  isAsking: boolean
  /** What was logged last, so that it is not logged again. */
  lastNews: string
}

export type ResponsesOptions = {
  /** Called when there is a new response. */
  onResponse: () => void
  log: Log
}

/**
 * What responders say about the certificates in use (OCSP). Whoever is away changes nothing: the last response stays
 * until it ends.
 */
export class Responses {
  readonly #options: ResponsesOptions
  /** By the SHA-256 of the certificate's file; null for a certificate without a responder or issuer. */
  #subjects = new Map<string, Subject | null>()
  #asking = 0

  constructor(options: ResponsesOptions) {
    this.#options = options
  }

  /** The response to staple to the certificate of a file: DER. Null if there is none that clients may be shown. */
  stapleFor(pem: string, now = Date.now()): Buffer | null {
    const held = this.#subjectOf(pem)?.held ?? null
    return held !== null && isServable(held.response.nextUpdate.getTime(), now) ? held.bytes : null
  }

  /** Begins to ask about what is due, and forgets all other certificates. @param pems content of the files in use */
  tend(pems: readonly string[], now = Date.now()): void {
    const used = new Map(pems.map(pem => [sha256(pem), this.#subjectOf(pem)]))
    this.#subjects = used
    const subjects = [...used.values()].filter(subject => subject !== null)
    pruneStored(new Set(subjects.map(({ digest }) => digest)))
    for (const subject of subjects) {
      if (this.#asking >= MAX_AT_ONCE) return
      const until = subject.held?.response.nextUpdate.getTime() ?? null
      if (!subject.isAsking && now >= nextAt(subject.asked, until)) void this.#ask(subject)
    }
  }

  #subjectOf(pem: string): Subject | null {
    const key = sha256(pem)
    const known = this.#subjects.get(key)
    if (known !== undefined) return known
    const subject = readSubject(pem)
    this.#subjects.set(key, subject)
    return subject
  }

  async #ask(subject: Subject): Promise<void> {
    const { question, digest } = subject
    this.#asking += 1
    subject.isAsking = true
    const failures = subject.asked?.failures ?? 0
    try {
      const bytes = await fetchResponse(question.responder, writeOcspRequest(question))
      const response = readOcspResponse(bytes, question, new Date())
      requireUsable(bytes, response)
      this.#tell(subject, response.status)
      writeStored(digest, bytes)
      subject.held = { bytes, response }
      subject.asked = { failures: 0, at: Date.now() }
      this.#options.onResponse()
    } catch (error) {
      const reason = error instanceof NoResponse ? error.message : (whatIsWrong(error) ?? String(error))
      this.#news(subject, `no OCSP response from ${question.responder}: ${reason}`)
      subject.asked = { failures: failures + 1, at: Date.now() }
    } finally {
      subject.isAsking = false
      this.#asking -= 1
    }
  }

  /** Clients get a revocation too; whoever operates the load balancer should know. */
  #tell(subject: Subject, status: OcspResponse['status']): void {
    const { serial, responder } = subject.question
    if (status === 'good') subject.lastNews = ''
    else this.#news(subject, `${responder} says that certificate ${serial.toString('hex')} is ${status}`)
  }

  #news(subject: Subject, text: string): void {
    if (subject.lastNews !== text) this.#options.log.warn(text)
    subject.lastNews = text
  }
}

/** @throws NoResponse for what HAProxy would refuse */
function requireUsable(bytes: Buffer, { status, nextUpdate }: OcspResponse): void {
  if (status === 'unknown') throw new NoResponse('it does not know the certificate')
  if (bytes.length > MAX_STAPLE_BYTES) throw new NoResponse('its response is too long to be stapled')
  if (!isServable(nextUpdate.getTime(), Date.now())) throw new NoResponse('its response ends too soon')
}

function readSubject(pem: string): Subject | null {
  try {
    const chain = pemBlocks(pem, 'CERTIFICATE')
    const question = readOcspQuestion(chain)
    if (question === null) return null
    const digest = sha256(Buffer.concat(chain.slice(0, 2)))
    const { held, at } = readHeld(digest, question)
    const asked = held === null ? null : { failures: 0, at }
    return { digest, question, held, asked, isAsking: false, lastNews: '' }
  } catch (error) {
    // A damaged file is another's to report.
    if (whatIsWrong(error) !== null) return null
    throw error
  }
}

/** What an earlier agent has fetched. */
function readHeld(digest: string, question: OcspQuestion): { held: Subject['held']; at: number } {
  const stored = readStored(digest)
  if (stored === null) return { held: null, at: 0 }
  try {
    const response = readOcspResponse(stored.bytes, question, new Date())
    return { held: { bytes: stored.bytes, response }, at: stored.at }
  } catch (error) {
    if (whatIsWrong(error) !== null) return { held: null, at: 0 }
    throw error
  }
}

const sha256 = (content: string | Buffer): string => createHash('sha256').update(content).digest('hex')
