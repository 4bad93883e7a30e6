import { OvsdbProtocolError } from './errors.js'

/** A JSON-RPC 1.0 message of an OVSDB server. */
export type OvsdbMessage =
  | { kind: 'request'; id: unknown; method: string; params: readonly unknown[] }
  | { kind: 'notification'; method: string; params: readonly unknown[] }
  | { kind: 'answer'; id: number; result: unknown }
  | { kind: 'refusal'; id: number; code: string; details: string }

const MAX_DETAILS = 500

/** @throws OvsdbProtocolError */
export function parseMessage(text: string): OvsdbMessage {
  const message = parseJson(text)
  const { id, method, params, result, error } = message
  if (typeof method === 'string' && Array.isArray(params)) {
    return id === null || id === undefined
      ? { kind: 'notification', method, params }
      : { kind: 'request', id, method, params }
  }
  if (typeof id !== 'number') throw notOvsdb(text)
  return error === null || error === undefined
    ? { kind: 'answer', id, result }
    : { kind: 'refusal', id, ...reasonOf(error) }
}

/** What an error says, which servers put in different forms. */
export function reasonOf(error: unknown): { code: string; details: string } {
  if (typeof error === 'string') return { code: error.slice(0, MAX_DETAILS), details: '' }
  const { error: code, details } = isRecord(error) ? error : {}
  return {
    code: typeof code === 'string' ? code.slice(0, MAX_DETAILS) : 'unknown error',
    details: typeof details === 'string' ? details.slice(0, MAX_DETAILS) : '',
  }
}

export const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function parseJson(text: string): Readonly<Record<string, unknown>> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw notOvsdb(text)
  }
  if (!isRecord(value)) throw notOvsdb(text)
  return value
}

const notOvsdb = (text: string) =>
  new OvsdbProtocolError(`The OVSDB server sends what is not OVSDB: ${JSON.stringify(text.slice(0, 100))}`)
