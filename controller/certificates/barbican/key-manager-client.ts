import { Unusable } from '../../../x509/material/material.js'
import { AnswerTooLarge, createExchange, type ExchangeOptions, transportErrorText } from '../../http/exchange.js'
import { KeyManagerUnavailable } from './errors.js'

export type KeyManagerRequest = {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE'
  path: string
  token: string
  /** Default: JSON. */
  accept?: string
  body?: object
  /** A status that says something about the request, besides the usual ones. */
  alsoConclusive?: number
}

export type KeyManagerAnswer = { status: number; bytes: Buffer }

export type KeyManagerClient = {
  /**
   * @throws KeyManagerUnavailable when the answer is missing, incomplete or reports a failing service
   * @throws Unusable when the answer is too long
   */
  send: (request: KeyManagerRequest, signal: AbortSignal) => Promise<KeyManagerAnswer>
  close: () => void
}

export type KeyManagerClientOptions = Omit<ExchangeOptions, 'maxConnections'> & {
  /** For one answer, retries included. */
  answerSeconds: number
}

/** Connections kept open, which is also the limit of concurrent requests. */
const MAX_CONNECTIONS = 16
/** More than a certificate chain, an ACL or a container's record takes. */
const MAX_ANSWER_BYTES = 64 * 1024
const MAX_ATTEMPTS = 2
/** Statuses that say something about the resource. Any other comes from a failing service or from something else. */
const CONCLUSIVE_STATUSES: ReadonlySet<number> = new Set([200, 401, 403, 404, 406, 410])

/** Sends requests to one key manager. All are idempotent, so one that fails in transport is retried. */
export function createKeyManagerClient(options: KeyManagerClientOptions): KeyManagerClient {
  const { url, answerSeconds } = options
  const exchange = createExchange({ ...options, maxConnections: MAX_CONNECTIONS })

  const send: KeyManagerClient['send'] = async (
    { method, path, token, accept, body, alsoConclusive },
    callerSignal,
  ) => {
    const timeout = AbortSignal.timeout(answerSeconds * 1000)
    const signal = AbortSignal.any([timeout, callerSignal])
    const headers = { 'X-Auth-Token': token, ...(accept !== undefined && { Accept: accept }) }
    for (let attempt = 1; ; attempt++) {
      try {
        const request = { method, path, headers, body, maxAnswerBytes: MAX_ANSWER_BYTES }
        const { status, bytes } = await exchange.send(request, signal)
        if (CONCLUSIVE_STATUSES.has(status) || status === alsoConclusive) return { status, bytes }
        throw new KeyManagerUnavailable(`${url} answered ${method} ${path} with ${status}`)
      } catch (error) {
        if (error instanceof KeyManagerUnavailable) throw error
        if (error instanceof AnswerTooLarge) throw new Unusable(`it is larger than ${MAX_ANSWER_BYTES} bytes`)
        if (callerSignal.aborted) throw new KeyManagerUnavailable(`${url} did not answer all requests in time`)
        if (timeout.aborted) throw new KeyManagerUnavailable(`${url} did not answer within ${answerSeconds} s`)
        if (attempt === MAX_ATTEMPTS)
          throw new KeyManagerUnavailable(`${url} cannot be reached: ${transportErrorText(error)}`)
      }
    }
  }
  return { send, close: exchange.close }
}
