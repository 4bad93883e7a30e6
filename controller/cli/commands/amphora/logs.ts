import { InvalidArgumentError, Option } from 'commander'
import { AgentRefused, AgentUnreachable } from '../../../provider/amphora/agent/errors.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { print, visible } from '../../terminal.js'
import { withAgents } from './agents.js'
import { consoleOf } from './console.js'
import { addressOf, idArgument, withAmphora } from './with-rows.js'

export const command: Command = {
  arguments: [idArgument],
  options: [
    new Option('--lines <n>', 'number of lines').argParser(parseCount).default(200),
    new Option('--console', 'what a virtual machine and its QEMU have said, also while its agent gives no answer'),
  ],
  run: (directory, { id, lines, console }: { id: string; lines: number; console?: boolean }) =>
    withAmphora(directory, id, async (instance, row) => {
      if (console === true) return printConsole(directory, row.id, lines)
      const logged = await withAgents(instance, agents => agents.logs(row.id, addressOf(row), lines)).catch(error => {
        if (!(error instanceof AgentUnreachable || error instanceof AgentRefused)) throw error
        const why = error.message.replace(/\.$/, '')
        throw new OperatorError(
          `The agent of the amphora ${row.id} gave no answer: ${why}. A running worker repairs it; \`krater amphora show ${row.id}\` shows its machine, \`krater amphora logs --console ${row.id}\` what a virtual one says.`,
        )
      })
      for (const line of logged) print(visible(line))
    }),
}

async function printConsole(directory: string, id: string, lines: number): Promise<void> {
  const text = await consoleOf(directory, id)
  if (text === null) throw new OperatorError(`The machine of the amphora ${id} has no console on this host.`)
  for (const line of text.trimEnd().split(/\r?\n/).slice(-lines)) print(visible(line))
}

function parseCount(text: string): number {
  const count = Number(text)
  if (!Number.isInteger(count) || count < 1 || count > 5000) {
    throw new InvalidArgumentError('It must be a whole number from 1 to 5000.')
  }
  return count
}
