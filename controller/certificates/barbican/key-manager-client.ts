import { AnswerTooLarge, createExchange, type ExchangeOptions, transportWords } from '../../http/exchange.js'
import { BadTarget, KeyManagerAway } from './key-manager-away.js'

export type KeyManagerRequest = {
  method: 'GET' | 'PUT'
  path: string
  token: string
  /** JSON when not given. */
  accept?: string
  body?: object
}

export type KeyManagerAnswer = { status: number; bytes: Buffer }

export type KeyManagerClient = {
  /**
   * @param signal ends it from outside
   * @throws KeyManagerAway when there is no whole answer, or one that says that the service fails; BadTarget for too long a one
   */
  send: (request: KeyManagerRequest, signal: AbortSignal) => Promise<KeyManagerAnswer>
  close: () => void
}

export type KeyManagerClientOptions = Omit<ExchangeOptions, 'mostAtOnce'> & {
  /** For one answer. */
  answerSeconds: number
}

/** Connections that are kept open; more requests than these are never under way. */
const MOST_AT_ONCE = 16
/** A chain of certificates is below this, and so is a list of rights or parts. */
const MOST_ANSWER_BYTES = 64 * 1024
const TRIES = 2
/** What can be told of one resource; anything else is told by a service that fails, or by none. */
const MEANINGFUL: ReadonlySet<number> = new Set([200, 401, 403, 404, 406, 410])

/** Requests to one key manager. All of them may be repeated, so one that the transport lost is tried again. */
export function createKeyManagerClient(options: KeyManagerClientOptions): KeyManagerClient {
  const { url, answerSeconds } = options
  const exchange = createExchange({ ...options, mostAtOnce: MOST_AT_ONCE })

  const send: KeyManagerClient['send'] = async ({ method, path, token, accept, body }, outside) => {
    const inside = AbortSignal.timeout(answerSeconds * 1000)
    const signal = AbortSignal.any([inside, outside])
    const headers = { 'X-Auth-Token': token, ...(accept !== undefined && { Accept: accept }) }
    for (let tried = 1; ; tried++) {
      try {
        const request = { method, path, headers, body, mostAnswerBytes: MOST_ANSWER_BYTES }
        const { status, bytes } = await exchange.send(request, signal)
        if (MEANINGFUL.has(status)) return { status, bytes }
        throw new KeyManagerAway(`${url} answered ${method} ${path} by ${status}`)
      } catch (error) {
        if (error instanceof KeyManagerAway) throw error
        if (error instanceof AnswerTooLarge) throw new BadTarget(`it has more than ${MOST_ANSWER_BYTES} bytes`)
        if (outside.aborted) throw new KeyManagerAway(`${url} did not answer all questions in time`)
        if (inside.aborted) throw new KeyManagerAway(`${url} gave no answer within ${answerSeconds} s`)
        if (tried === TRIES) throw new KeyManagerAway(`${url} cannot be reached: ${transportWords(error)}`)
      }
    }
  }
  return { send, close: exchange.close }
}
