import { Option } from 'commander'
import { hostState, readHosts } from '../../hosts/read-hosts.js'
import { readAgentBundle } from '../../provider/amphora/agent/bundle.js'
import type { Command } from '../command.js'
import { print } from '../terminal.js'
import { agentBundle } from '../wiring/drivers.js'
import { agentLines, summariseAgents } from './amphora/agent-summary.js'
import { hostLines, processLines } from './controller/host-lines.js'
import { withHosts } from './controller/with-hosts.js'

export const command: Command = {
  options: [new Option('--json', 'print JSON, with times in seconds')],
  run: async (directory, { json }: { json?: boolean }) => {
    const { hosts, agents } = await withHosts(directory, async (_instance, database) => ({
      hosts: await readHosts(database),
      agents: await summariseAgents(database, readAgentBundle(agentBundle).sha256),
    }))
    if (json) print(JSON.stringify({ hosts: hosts.map(row => ({ ...row, state: hostState(row) })), agents }, null, 2))
    else for (const line of [...hostLines(hosts), '', ...processLines(hosts), '', ...agentLines(agents)]) print(line)
  },
}
