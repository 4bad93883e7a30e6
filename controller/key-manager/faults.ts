import type { Fault } from '../http/application.js'
import { ApiError } from '../http/errors.js'

/** An error about the microversion asked for: it comes in a shape of its own. */
export class MicroversionFault extends ApiError {}

/** A limit of the project is reached. */
export const quotaReached = (kind: string) => new ApiError(403, `The project's quota of ${kind} is reached.`)

/** Errors as Barbican shapes them. A 401 carries the shape of Keystone's middleware beside it, as clients read the one or the other. */
export function presentFault({ status, title, message }: Fault, error: unknown): unknown {
  if (error instanceof MicroversionFault) return { message, code: `${status} ${title}`, title }
  const fault = { code: status, title, description: status === 406 ? null : message }
  return status === 401 ? { ...fault, error: { code: status, title, message } } : fault
}
