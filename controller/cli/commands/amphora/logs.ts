import { InvalidArgumentError, Option } from 'commander'
import { AgentRefused, AgentUnreachable } from '../../../provider/amphora/agent/errors.js'
import type { Command } from '../../command.js'
import { OperatorError } from '../../operator-error.js'
import { print, visible } from '../../terminal.js'
import { withAgents } from './agents.js'
import { addressOf, idArgument, withAmphora } from './with-rows.js'

export const command: Command = {
  arguments: [idArgument],
  options: [new Option('--lines <n>', 'number of lines').argParser(parseCount).default(200)],
  run: (directory, { id, lines }: { id: string; lines: number }) =>
    withAmphora(directory, id, async (instance, row) => {
      const logged = await withAgents(instance, agents => agents.logs(row.id, addressOf(row), lines)).catch(error => {
        if (!(error instanceof AgentUnreachable || error instanceof AgentRefused)) throw error
        const why = error.message.replace(/\.$/, '')
        throw new OperatorError(
          `The agent of the amphora ${row.id} gave no answer: ${why}. A running worker repairs it; \`krater amphora show ${row.id}\` shows its machine.`,
        )
      })
      for (const line of logged) print(visible(line))
    }),
}

function parseCount(text: string): number {
  const count = Number(text)
  if (!Number.isInteger(count) || count < 1 || count > 5000) {
    throw new InvalidArgumentError('It must be a whole number from 1 to 5000.')
  }
  return count
}
