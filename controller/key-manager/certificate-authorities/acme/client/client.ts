import type { KeyObject } from 'node:crypto'
import * as z from 'zod'
import { jwkOf, signJws } from './jose.js'
import { AcmeProblem, jsonOf, problemOf, retryAfterOf } from './problem.js'
import { type HttpAnswer, send } from './transport.js'

const url = z.string().startsWith('https://')

const directory = z.object({
  newNonce: url,
  newAccount: url,
  newOrder: url,
  revokeCert: url.optional(),
  renewalInfo: url.optional(),
  meta: z.object({ termsOfService: z.string().optional(), externalAccountRequired: z.boolean().optional() }).optional(),
})

export type Directory = z.output<typeof directory>

/** How long a directory is kept. */
const DIRECTORY_MS = 3_600_000
const MAX_NONCES = 20
/** A server that refuses so many fresh nonces in a row has a fault. */
const MAX_BAD_NONCES = 6

export type Answered<Value> = {
  value: Value
  /** URL of a new object. */
  location: string | null
  retryAfter: number | null
}

/** The account: a key on P-256, and its URL once it is registered. */
export type Account = { key: KeyObject; url: string | null }

export type AcmeClient = {
  directory: (signal: AbortSignal) => Promise<Directory>
  /**
   * Sends a signed request.
   * @param payload null reads (POST-as-GET)
   * @throws AcmeProblem, Unreachable
   */
  post: <Schema extends z.ZodType>(
    account: Account,
    target: string,
    payload: unknown,
    schema: Schema,
    signal: AbortSignal,
  ) => Promise<Answered<z.output<Schema>>>
  /** The same for an answer that is no JSON. */
  postForText: (account: Account, target: string, payload: unknown, signal: AbortSignal) => Promise<string>
  /** Reads without a signature. @throws AcmeProblem, Unreachable */
  get: <Schema extends z.ZodType>(
    target: string,
    schema: Schema,
    signal: AbortSignal,
  ) => Promise<Answered<z.output<Schema>>>
}

/**
 * A client of RFC 8555: it signs, keeps nonces and reads problems. It never waits and never repeats a request but for a
 * refused nonce, so its caller decides what Retry-After means.
 * @param ca PEM of the CAs that sign the directory's certificate; undefined for those of Node.js
 */
export function createAcmeClient(directoryUrl: string, ca: string | undefined): AcmeClient {
  const nonces: string[] = []
  let known: { directory: Directory; until: number } | null = null

  const keepNonce = (answer: HttpAnswer): HttpAnswer => {
    const nonce = answer.header('replay-nonce')
    if (nonce !== null && nonces.length < MAX_NONCES) nonces.push(nonce)
    return answer
  }

  const get: AcmeClient['get'] = async (target, schema, signal) =>
    answered(await send({ method: 'GET', url: target }, ca, signal), schema)

  const readDirectory = async (signal: AbortSignal): Promise<Directory> => {
    if (known === null || known.until < performance.now()) {
      const { value } = await get(directoryUrl, directory, signal)
      known = { directory: value, until: performance.now() + DIRECTORY_MS }
    }
    return known.directory
  }

  const takeNonce = async (signal: AbortSignal): Promise<string> => {
    const kept = nonces.pop()
    if (kept !== undefined) return kept
    const { newNonce } = await readDirectory(signal)
    const nonce = (await send({ method: 'HEAD', url: newNonce }, ca, signal)).header('replay-nonce')
    if (nonce === null) throw new AcmeProblem('', 'The CA sent no nonce.', 0, null)
    return nonce
  }

  const postSigned = async (
    { key, url: kid }: Account,
    target: string,
    payload: unknown,
    signal: AbortSignal,
  ): Promise<HttpAnswer> => {
    for (let attempt = 1; ; attempt++) {
      const nonce = await takeNonce(signal)
      const identity = kid === null ? { jwk: await jwkOf(key) } : { kid }
      const json = await signJws(key, { ...identity, nonce, url: target }, payload)
      const answer = keepNonce(await send({ method: 'POST', url: target, json }, ca, signal))
      if (answer.status < 400) return answer
      const problem = problemOf(answer)
      if (problem.kind !== 'badNonce' || attempt === MAX_BAD_NONCES) throw problem
      // Older ones are probably refused as well.
      nonces.splice(0, nonces.length - 1)
    }
  }

  return {
    directory: readDirectory,
    get,
    post: async (account, target, payload, schema, signal) =>
      answered(await postSigned(account, target, payload, signal), schema),
    postForText: async (account, target, payload, signal) =>
      (await postSigned(account, target, payload, signal)).body.toString('utf8'),
  }
}

/** @throws AcmeProblem for an error, and for an answer of another form */
function answered<Schema extends z.ZodType>(answer: HttpAnswer, schema: Schema): Answered<z.output<Schema>> {
  if (answer.status >= 300) throw problemOf(answer)
  const parsed = schema.safeParse(jsonOf(answer))
  if (!parsed.success) throw new AcmeProblem('', 'The answer of the CA cannot be read.', answer.status, null)
  return { value: parsed.data, location: answer.header('location'), retryAfter: retryAfterOf(answer, Date.now()) }
}
