import type { Command } from '../../command.js'
import { print, table } from '../../terminal.js'
import { describeAmphora } from './describe.js'
import { idArgument, withAmphora } from './with-rows.js'

export const command: Command = {
  arguments: [idArgument],
  run: (directory, { id }: { id: string }) =>
    withAmphora(directory, id, async (instance, row) => {
      for (const line of table(await describeAmphora(instance, row))) print(line)
    }),
}
