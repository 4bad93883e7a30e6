import type { Command } from '../../command.js'
import { attachCommand, attachmentStates, describePlace } from '../../host/attachments.js'
import { requireRoot } from '../../host/checks.js'
import { print, table } from '../../terminal.js'

export const command: Command = {
  run: async directory => {
    requireRoot()
    const attachments = await attachmentStates(directory)
    if (attachments.length === 0) {
      print('Nothing is attached. `krater network attach NETWORK NAME` gives a program a place on a network.')
      return
    }
    const rows = attachments.map(({ name, network, addresses, place, interfaceName, state }) => [
      name,
      network.name,
      addresses.map(text => text.split('/')[0]).join(', '),
      interfaceName,
      describePlace(place),
      state,
    ])
    for (const line of table([['name', 'network', 'address', 'interface', 'where', 'state'], ...rows])) print(line)
    for (const ended of attachments.filter(({ state }) => state === 'ended')) {
      print(`${ended.name} has ended. Attach it again, with the same address: ${attachCommand(ended)}`)
    }
  },
}
