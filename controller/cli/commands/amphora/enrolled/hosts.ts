import { enrolledHosts } from '../../../../compute/enrolled/hosts.js'
import type { Command } from '../../../command.js'
import { print, table, visible } from '../../../terminal.js'
import { withRows } from '../with-rows.js'

const HEADING = ['name', 'state', 'address', 'zone', 'physical host', 'networks', 'amphora']

export const command: Command = {
  run: async directory => {
    const hosts = await withRows(directory, (_instance, database) => enrolledHosts(database))
    if (hosts.length === 0) {
      print('No host is enrolled. To enroll one: krater amphora enroll USER@HOST')
      return
    }
    const lines = hosts.map(host => [
      host.name,
      host.state,
      host.port === 22 ? host.address : `${host.address} port ${host.port}`,
      host.zone,
      host.physicalHost,
      host.interfaces.map(({ networkName, name }) => `${networkName} by ${name}`).join(', '),
      host.state === 'in use' ? (host.amphoraId ?? '-') : '-',
    ])
    for (const line of table([HEADING, ...lines])) print(line)
    for (const { name, reason } of hosts) if (reason !== null) print(`${name}: ${visible(reason)}`)
  },
}
