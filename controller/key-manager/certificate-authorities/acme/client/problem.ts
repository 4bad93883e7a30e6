import * as z from 'zod'
import { CaFault } from '../../ca-fault.js'
import type { HttpAnswer } from './transport.js'

const PREFIX = 'urn:ietf:params:acme:error:'
const MAX_DETAIL = 200
const MAX_RETRY_SECONDS = 7 * 86_400

const problemDocument = z.object({ type: z.string().optional(), detail: z.string().optional() })

/** An error of RFC 8555, 6.7. The message is for tenants. */
export class AcmeProblem extends CaFault {
  /**
   * @param kind the last part of the problem's type, such as rateLimited; '' for any other answer
   * @param retryAfter seconds that the server asks for; null if it does not
   */
  constructor(
    readonly kind: string,
    detail: string,
    readonly status: number,
    readonly retryAfter: number | null,
  ) {
    super(detail)
  }
}

/** One line of printable text, for messages: what a server wrote may go into logs and answers. */
export const oneLine = (text: string): string =>
  [...text.replace(/[\p{C}\p{Z}]+/gu, ' ').trim()].slice(0, MAX_DETAIL).join('')

/** The problem in the JSON of an answer, an authorization or an order. */
export function problemIn(json: unknown, status: number, retryAfter: number | null): AcmeProblem {
  const { type = '', detail } = problemDocument.safeParse(json).data ?? {}
  const kind = type.startsWith(PREFIX) ? type.slice(PREFIX.length) : ''
  return new AcmeProblem(kind, oneLine(detail ?? `The CA answered with status ${status}.`), status, retryAfter)
}

/** The problem of an answer. */
export function problemOf(answer: HttpAnswer): AcmeProblem {
  return problemIn(jsonOf(answer), answer.status, retryAfterOf(answer, Date.now()))
}

/** The JSON of an answer; undefined for any other body. */
export function jsonOf({ body }: HttpAnswer): unknown {
  try {
    return JSON.parse(body.toString('utf8'))
  } catch {
    return undefined
  }
}

/** Seconds of Retry-After, at most a week; null without it. */
export function retryAfterOf({ header }: Pick<HttpAnswer, 'header'>, now: number): number | null {
  const text = header('retry-after')
  if (text === null) return null
  const seconds = /^\d+$/.test(text) ? Number(text) : Math.ceil((Date.parse(text) - now) / 1000)
  return Number.isNaN(seconds) ? null : Math.min(MAX_RETRY_SECONDS, Math.max(0, seconds))
}
