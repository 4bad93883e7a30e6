import { ApiError } from '../../http/errors.js'
import type { Fault } from '../../http/fault.js'

/** An error in the path itself. Its body has the keys of the routing layer in addition to those of a fault. */
export class RoutingFault extends ApiError {}

export const immutable = (label: string, id: string) =>
  new ApiError(409, `${label} ${id} is immutable and cannot be updated.`)

export const missing = (label: string, id: string) => new ApiError(404, `${label} ${id} not found.`)

/** A missing object in the path above the requested one. */
export const missingParent = (label: string, id: string) => new RoutingFault(404, `${label} ${id} not found.`)

/** A network object that a body refers to and the caller cannot see: 400, because the body is wrong. */
export const missingReference = (label: string, id: string) => new ApiError(400, `${label} ${id} not found.`)

/** A valid value that the operator has disabled. */
export const disabledOption = (option: string, value: string) =>
  new ApiError(400, `The selected ${option} is not allowed in this deployment: ${value}`)

export const invalid = (detail: string) => new ApiError(400, `Validation failure: ${detail}`)

/** Faults in Octavia's form; 401 has the body of the token layer, and 406 that of content negotiation. */
export function presentFault({ status, title, message, requestId }: Fault, error: unknown): unknown {
  if (status === 401) return { error: { code: 401, title, message } }
  if (status === 406) return { errors: [{ status, title, detail: message, request_id: requestId }] }
  const fault = { faultcode: status >= 500 ? 'Server' : 'Client', faultstring: message, debuginfo: null }
  return error instanceof RoutingFault ? { ...fault, code: status, title, description: message } : fault
}
