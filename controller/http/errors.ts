/** An error for the caller: the API answers with its status and message, in the API's own error shape. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly headers: Readonly<Record<string, string>> = {},
  ) {
    super(message)
    this.name = 'ApiError'
  }
}

/**
 * Refuses one of too many requests. Refusals with the same `flood` (of what there is too much, and from whom)
 * share log lines.
 */
export class FloodError extends ApiError {
  constructor(
    status: 429 | 503,
    message: string,
    readonly flood: string,
    retryAfterSeconds: number,
  ) {
    super(status, message, { 'Retry-After': String(Math.max(1, Math.ceil(retryAfterSeconds))) })
  }
}

export const badRequest = (message: string) => new ApiError(400, message)
export const forbidden = (message = 'Policy does not allow this request to be performed.') => new ApiError(403, message)
export const notFound = (message: string) => new ApiError(404, message)
export const conflict = (message: string) => new ApiError(409, message)
export const notImplemented = (message: string) => new ApiError(501, message)
