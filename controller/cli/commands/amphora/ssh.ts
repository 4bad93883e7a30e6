import { Argument } from 'commander'
import type { Command } from '../../command.js'
import { operatorSsh } from './operator-ssh.js'
import { addressOf, idArgument, withAmphora } from './with-rows.js'

export const command: Command = {
  arguments: [idArgument, new Argument('[command...]', 'command to run instead of a shell')],
  run: async (directory, { id, command: words }: { id: string; command: string[] }) => {
    // A shell may stay open for long: close the database first.
    const { instance, row } = await withAmphora(directory, id, async (instance, row) => ({ instance, row }))
    const { status } = await operatorSsh(instance, { amphoraId: row.id, address: addressOf(row) }, words, 'inherit')
    return status
  },
}
