import { existsSync } from 'node:fs'
import { Argument, InvalidArgumentError } from 'commander'
import { configurationFile, parseConfiguration, readConfiguration } from '../../../config/load.js'
import { settings } from '../../../config/settings.js'
import { interfaceAddresses } from '../../../network/local/ip-command.js'
import { requireRoot } from '../../host/checks.js'
import { requireFabric } from '../../host/require-fabric.js'
import { OperatorError } from '../../operator-error.js'
import { changeSettings } from '../../state-directory/change-settings.js'
import { print } from '../../terminal.js'
import { requireInstanceId } from '../../wiring/drivers.js'
import { hostLegName } from '../../wiring/network/host-networks.js'
import { restart } from '../up/restart.js'

export type HostPort = { protocol: 'tcp' | 'udp'; port: number }

const SETTINGS = { tcp: 'load_balancer.host_member_ports', udp: 'load_balancer.host_member_udp_ports' } as const

/** @param name as commander has it: `[ports...]` or `<ports...>` */
export const portsArgument = (name: string): Argument =>
  new Argument(name, 'port, such as 8081 or 53/udp').argParser((text: string, given: HostPort[] = []) => [
    ...given,
    parsePort(text),
  ])

/**
 * Opens or closes ports of this host to load balancers, and says which are open. Restarts the controllers if that
 * changes anything.
 */
export async function changeHostPorts(
  directory: string,
  asked: readonly HostPort[],
  way: 'open' | 'close',
): Promise<void> {
  requireRoot()
  requireFabric(directory)
  const before = portsIn(directory)
  const isAsked = (one: HostPort) => asked.some(other => textOf(other) === textOf(one))
  const after = way === 'close' ? before.filter(one => !isAsked(one)) : union(before, asked)
  const changed = (['tcp', 'udp'] as const).filter(protocol => numbers(after, protocol) !== numbers(before, protocol))
  if (changed.length > 0) {
    changed.forEach(refuseVariable)
    changeSettings(
      directory,
      changed.map(protocol => `${SETTINGS[protocol]}=${numbers(after, protocol)}`),
    )
    await restart(directory)
  }
  print(await describe(directory, after))
}

function portsIn(directory: string): HostPort[] {
  const file = configurationFile(directory)
  if (!existsSync(directory)) throw new OperatorError(`There is no instance in ${directory}. \`krater up\` makes one.`)
  const { load_balancer } = parseConfiguration(readConfiguration(file), process.env, file)
  return [
    ...load_balancer.host_member_ports.map(port => ({ protocol: 'tcp', port }) as const),
    ...load_balancer.host_member_udp_ports.map(port => ({ protocol: 'udp', port }) as const),
  ]
}

const textOf = ({ protocol, port }: HostPort): string => `${port}/${protocol}`

const union = (before: readonly HostPort[], asked: readonly HostPort[]): HostPort[] => [
  ...new Map([...before, ...asked].map(one => [textOf(one), one])).values(),
]

const numbers = (all: readonly HostPort[], protocol: HostPort['protocol']): string =>
  all.flatMap(one => (one.protocol === protocol ? [one.port] : [])).join(',')

/** @throws OperatorError if a variable would overrule what is written to krater.yaml */
function refuseVariable(protocol: HostPort['protocol']): void {
  const variable = settings.find(({ name }) => name === SETTINGS[protocol])?.variable ?? ''
  if (process.env[variable] === undefined) return
  throw new OperatorError(
    `The variable ${variable} says which ports are open. Change or unset it. Nothing was changed.`,
  )
}

async function describe(directory: string, all: readonly HostPort[]): Promise<string> {
  if (all.length === 0) return 'Load balancers reach no port of this host. To open one: krater network open PORT'
  const leg = hostLegName(requireInstanceId(directory), 'pub')
  const addresses = await interfaceAddresses(leg).catch(() => [])
  const where = addresses.map(text => text.split('/')[0]).join(' and ')
  const at = where === '' ? 'once `krater up` has run' : `at ${where}`
  return `Load balancers reach these ports of this host, ${at}: ${all.map(textOf).join(', ')}`
}

function parsePort(text: string): HostPort {
  const [, number = '', protocol = 'tcp'] = /^([1-9]\d{0,4})(?:\/(tcp|udp))?$/.exec(text) ?? []
  const port = Number(number)
  if (port >= 1 && port <= 65_535) return { protocol: protocol as HostPort['protocol'], port }
  throw new InvalidArgumentError('It must be a port from 1 to 65535, with /udp for UDP.')
}
