import { readHosts } from '../../../hosts/read-hosts.js'
import type { Command } from '../../command.js'
import { print } from '../../terminal.js'
import { hostLines } from './host-lines.js'
import { withHosts } from './with-hosts.js'

export const command: Command = {
  run: async directory => {
    const hosts = await withHosts(directory, (_instance, database) => readHosts(database))
    for (const line of hostLines(hosts)) print(line)
  },
}
