/** A failure whose message tells the operator what is wrong and what to do: printed without a stack. */
export class OperatorError extends Error {
  constructor(
    message: string,
    readonly exitStatus = 1,
  ) {
    super(message)
  }
}

/** The command line asks for something impossible. Nothing was done. */
export class UsageError extends OperatorError {
  constructor(message: string) {
    super(message, 2)
  }
}
