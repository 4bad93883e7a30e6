import { Argument } from 'commander'
import type { Command } from '../../command.js'
import { detach } from '../../host/attachments.js'
import { requireRoot } from '../../host/checks.js'
import { print } from '../../terminal.js'

export const command: Command = {
  arguments: [new Argument('<name>', 'name of the attachment')],
  run: async (directory, given) => {
    const { name } = given as { name: string }
    requireRoot()
    const record = await detach(directory, name)
    print(`Detached ${record.name} from ${record.network.name}.`)
  },
}
