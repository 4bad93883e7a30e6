/** No server answers, or the connection broke. A transaction that was under way may have happened or not. */
export class OvsdbUnreachable extends Error {
  override readonly name = 'OvsdbUnreachable'
}

/** What came is not OVSDB. Its sender cannot be trusted any more. */
export class OvsdbProtocolError extends Error {
  override readonly name = 'OvsdbProtocolError'
}

/** More is asked of a connection than it may hold. Nothing was sent. */
export class OvsdbBusy extends Error {
  override readonly name = 'OvsdbBusy'
}

/** The server answers a method with an error. `code` is OVSDB's, such as `unknown method`. */
export class MethodRefused extends Error {
  override readonly name = 'MethodRefused'

  constructor(
    readonly method: string,
    readonly code: string,
    details: string,
  ) {
    super(`The OVSDB server refuses ${method}: ${details === '' ? code : `${code}: ${details}`}`)
  }
}

/** The server refuses a transaction as a whole. Nothing of it happened. */
export class TransactionRefused extends Error {
  override readonly name = 'TransactionRefused'

  constructor(
    /** OVSDB's, such as `constraint violation`. */
    readonly code: string,
    /** The first operation that failed; null if the commit did. */
    readonly operation: string | null,
    details: string,
  ) {
    super(`OVSDB refuses ${operation ?? 'a transaction'}: ${details === '' ? code : `${code}: ${details}`}`)
  }
}

/** A row that a transaction changes or deletes was not there. The rest of the transaction happened. */
export class RowsGone extends Error {
  override readonly name = 'RowsGone'

  constructor(operations: readonly string[]) {
    super(`Rows were not there any more: ${operations.join(', ')}`)
  }
}
