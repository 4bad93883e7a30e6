import { Argument, Option } from 'commander'
import type { Command } from '../../command.js'
import { requireAttachment } from '../../host/attachments.js'
import { requireRoot } from '../../host/checks.js'
import { OperatorError } from '../../operator-error.js'
import { print } from '../../terminal.js'

export const command: Command = {
  arguments: [new Argument('<name>', 'name of the attachment')],
  options: [new Option('--ipv6', 'print the IPv6 address')],
  run: async (directory, given) => {
    const { name, ipv6 = false } = given as { name: string; ipv6?: boolean }
    requireRoot()
    const { addresses, network } = requireAttachment(directory, name)
    const found = addresses.find(address => address.includes(':') === ipv6)
    if (found === undefined) {
      throw new OperatorError(`${name} has no ${ipv6 ? 'IPv6' : 'IPv4'} address on ${network.name}.`)
    }
    print(found.split('/')[0])
  },
}
