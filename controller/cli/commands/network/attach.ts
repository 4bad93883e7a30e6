import { Argument, InvalidArgumentError, Option } from 'commander'
import type { Command } from '../../command.js'
import { attach, placeOf } from '../../host/attachments.js'
import { requireRoot } from '../../host/checks.js'
import { requireFabric } from '../../host/require-fabric.js'
import { UsageError } from '../../operator-error.js'
import { print } from '../../terminal.js'
import { cloudOption } from './options.js'

type Given = {
  network: string
  name: string
  address?: string
  namespace?: string
  pid?: number
  securityGroup: string[]
  cloud: 'krater' | 'krater-admin'
}

export const command: Command = {
  arguments: [
    new Argument('<network>', 'name or ID of the network'),
    new Argument('<name>', 'name of the attachment, such as web-1'),
  ],
  options: [
    new Option('--pid <pid>', 'process of a container that gets the interface').argParser(parsePid),
    new Option('--namespace <name>', 'existing network namespace that gets the interface'),
    new Option('--address <address>', 'address on the network (default: the network chooses)'),
    new Option(
      '--security-group <group>',
      'security group of the port, by name or ID; repeatable (default: none, open)',
    )
      .argParser((group: string, given: string[]) => [...given, group])
      .default([], ''),
    cloudOption,
  ],
  run: async (directory, given) => {
    const { network, name, address, namespace, pid, securityGroup, cloud } = given as Given
    requireRoot()
    requireFabric(directory)
    if (pid !== undefined && namespace !== undefined) {
      throw new UsageError('Give --pid or --namespace, not both.')
    }
    const into = pid !== undefined ? { pid } : namespace !== undefined ? { namespace } : null
    const place = into === null ? null : placeOf(into)
    const securityGroups = securityGroup
    const record = await attach(directory, { name, cloud, network, address: address ?? null, securityGroups, place })
    const addresses = record.addresses.map(text => text.split('/')[0]).join(', ')
    print(`${record.name} has ${addresses} on ${record.network.name} (${record.interfaceName}).`)
    print(`Run a program there: krater network exec ${record.name} COMMAND`)
  },
}

function parsePid(text: string): number {
  if (/^[1-9]\d{0,9}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('It must be the number of a process.')
}
