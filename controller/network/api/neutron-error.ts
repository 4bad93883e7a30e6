import type { Fault } from '../../http/application.js'
import { ApiError } from '../../http/errors.js'

/** An error of this API with Neutron's name for it, which clients tell errors apart by. */
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
 * Errors that have no name of Neutron's are named after their status. A missing or bad token is answered in the shape of the token
 * layer, which stands before Neutron.
 */
export function presentFault({ status, title, message }: Fault, error: unknown): unknown {
  if (status === 401) return { error: { code: status, title, message } }
  return bodyOf(error instanceof NeutronError ? error.type : `HTTP${title.replaceAll(' ', '')}`, message)
}

export type Singular = 'network' | 'subnet' | 'port'

const capitalised = (word: string) => word.charAt(0).toUpperCase() + word.slice(1)

export const missing = (kind: Singular, id: string) =>
  new NeutronError(404, `${capitalised(kind)}NotFound`, `${capitalised(kind)} ${id} could not be found.`)
export const invalidRequest = (message: string) => new NeutronError(400, 'HTTPBadRequest', message)
export const invalidInput = (reason: string) =>
  new NeutronError(400, 'InvalidInput', `Invalid input for operation: ${reason}`)
export const disallowed = (rule: string) =>
  new NeutronError(403, 'PolicyNotAuthorized', `rule:${rule} is disallowed by policy`)
export const clash = (type: string, message: string) => new NeutronError(409, type, message)
