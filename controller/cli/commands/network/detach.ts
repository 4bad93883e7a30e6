import { Argument } from 'commander'
import { signIn } from '../../api-client.js'
import type { Command } from '../../command.js'
import { detach } from '../../host/attachments.js'
import { requireRoot } from '../../host/checks.js'
import { print } from '../../terminal.js'
import { cloudOption } from './options.js'

export const command: Command = {
  arguments: [new Argument('<name>', 'name of the attachment')],
  options: [cloudOption],
  run: async (directory, given) => {
    const { name, cloud } = given as { name: string; cloud: 'krater' | 'krater-admin' }
    requireRoot()
    const record = await detach(directory, await signIn(directory, cloud), name)
    print(`Detached ${record.name} from ${record.network.name}.`)
  },
}
