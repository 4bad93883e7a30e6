import { constants } from 'node:os'
import { createInterface } from 'node:readline/promises'
import { OperatorError } from './operator-error.js'

/**
 * Asks on the terminal.
 * @returns the answer in lower case, without blanks around it
 * @throws OperatorError for Ctrl-C and Ctrl-D
 */
export async function ask(question: string): Promise<string> {
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  const interrupt = new AbortController()
  terminal.once('SIGINT', () => interrupt.abort())
  try {
    const answer = await terminal.question(question, { signal: interrupt.signal })
    return answer.trim().toLowerCase()
  } catch {
    const { aborted } = interrupt.signal
    throw new OperatorError(
      'The question was not answered. Nothing was changed.',
      aborted ? 128 + constants.signals.SIGINT : 1,
    )
  } finally {
    terminal.close()
  }
}
