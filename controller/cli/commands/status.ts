import { Option } from 'commander'
import { hostState, readHosts } from '../../hosts/read-hosts.js'
import type { Command } from '../command.js'
import { print } from '../terminal.js'
import { hostLines, processLines } from './controller/host-lines.js'
import { withHosts } from './controller/with-hosts.js'

export const command: Command = {
  options: [new Option('--json', 'print JSON, with times in seconds')],
  run: async (directory, { json }: { json?: boolean }) => {
    const hosts = await withHosts(directory, (_instance, database) => readHosts(database))
    if (json) print(JSON.stringify({ hosts: hosts.map(row => ({ ...row, state: hostState(row) })) }, null, 2))
    else for (const line of [...hostLines(hosts), '', ...processLines(hosts)]) print(line)
  },
}
