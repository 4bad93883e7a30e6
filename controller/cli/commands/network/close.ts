import type { Command } from '../../command.js'
import { changeHostPorts, type HostPort, portsArgument } from './host-ports.js'

export const command: Command = {
  arguments: [portsArgument('<ports...>')],
  run: async (directory, given) => {
    await changeHostPorts(directory, (given as { ports: HostPort[] }).ports, 'close')
  },
}
