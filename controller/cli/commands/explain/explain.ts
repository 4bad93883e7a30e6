import { Argument } from 'commander'
import { signInAsCaller } from '../../api-client.js'
import type { Command } from '../../command.js'
import { print } from '../../terminal.js'
import { gather } from './gather.js'
import { explainFacts } from './report.js'

export const command: Command = {
  arguments: [
    new Argument(
      '<object>',
      'ID or name of a load balancer, listener, pool, member, health monitor or L7 policy. Reads them with the OS_* variables of an openrc file, or OS_CLOUD. Exit status: 0 if it works, 1 if it does not, 2 if there is none',
    ),
  ],
  run: async (directory, given) => {
    const { lines, works } = explainFacts(await gather(await signInAsCaller(directory), String(given.object)))
    for (const line of lines) print(line)
    return works ? 0 : 1
  },
}
