import { ApiError } from '../../http/errors.js'
import type { Fault } from '../../http/fault.js'
import { KINDS, type Singular } from './kinds.js'

/** An error with Neutron's type name, by which clients distinguish errors. */
export class NeutronError extends ApiError {
  constructor(
    status: number,
    readonly type: string,
    message: string,
  ) {
    super(status, message)
  }
}

const bodyOf = (type: string, message: string) => ({ NeutronError: { type, message, detail: '' } })

/**
 * Errors without a Neutron type are named after their status. A missing or invalid token gets the response of
 * keystonemiddleware, which sits in front of Neutron.
 */
export function presentFault({ status, title, message }: Fault, error: unknown): unknown {
  if (status === 401) return { error: { code: status, title, message } }
  return bodyOf(error instanceof NeutronError ? error.type : `HTTP${title.replaceAll(' ', '')}`, message)
}

export const notFound = (kind: Singular, id: string) =>
  new NeutronError(404, `${KINDS[kind].fault}NotFound`, KINDS[kind].missing(id))
export const invalidRequest = (message: string) => new NeutronError(400, 'HTTPBadRequest', message)
export const invalidInput = (reason: string) =>
  new NeutronError(400, 'InvalidInput', `Invalid input for operation: ${reason}`)
export const badRequest = (resource: string, reason: string) =>
  new NeutronError(400, 'BadRequest', `Bad ${resource} request: ${reason}.`)
export const notAuthorized = (rule: string) =>
  new NeutronError(403, 'PolicyNotAuthorized', `rule:${rule} is disallowed by policy`)
export const conflict = (type: string, message: string) => new NeutronError(409, type, message)
