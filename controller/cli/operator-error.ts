import { ConfigurationError } from '../options/configuration-error.js'

/** A failure whose message tells the operator everything: printed without a stack. */
export class OperatorError extends Error {
  constructor(
    message: string,
    readonly exitStatus = 1,
  ) {
    super(message)
  }
}

const SYSTEM_ERRORS: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full',
  EACCES: 'permission denied',
  EROFS: 'the file system is read-only',
  ECONNREFUSED: 'nothing listens there',
  ENOTFOUND: 'unknown host name',
  ETIMEDOUT: 'no answer in time',
}

/** The text and exit status for an error. An unknown error is a bug and shows its stack. */
export function explain(error: unknown): { text: string; exitStatus: number } {
  if (error instanceof OperatorError) return { text: error.message, exitStatus: error.exitStatus }
  if (error instanceof ConfigurationError) return { text: error.message, exitStatus: 1 }
  if (error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code in SYSTEM_ERRORS) {
    return { text: `${error.message} (${SYSTEM_ERRORS[error.code]})`, exitStatus: 1 }
  }
  return { text: error instanceof Error ? (error.stack ?? error.message) : String(error), exitStatus: 1 }
}
