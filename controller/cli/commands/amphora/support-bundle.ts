import { Option } from 'commander'
import type { Command } from '../../command.js'
import { print } from '../../terminal.js'
import { writeSupportBundle } from './bundle.js'
import { idArgument, withAmphora } from './with-rows.js'

export const command: Command = {
  arguments: [idArgument],
  options: [new Option('--output <file>', 'path of the .tar.gz file (default: in the current directory)')],
  run: (directory, { id, output }: { id: string; output?: string }) =>
    withAmphora(directory, id, async (instance, row) => {
      print(await writeSupportBundle(instance, row, output ?? `amphora-${row.id}.tar.gz`))
    }),
}
