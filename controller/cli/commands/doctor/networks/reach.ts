import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import * as z from 'zod'
import { type Finding, fault, note, ok } from '../../../../checks/finding.js'
import { findBuiltInNetworks } from '../../../../network/bootstrap.js'
import { forwards } from '../../../../network/local/host/forwarding.js'
import { networkDriverOf, requireInstanceId } from '../../../wiring/drivers.js'
import { type Instance, openDatabase } from '../../../wiring/instance.js'
import { hostLegName } from '../../../wiring/network/host-networks.js'
import { type Blocking, blockingChain, passCommands, type Ruleset, readRuleset } from './firewall.js'

const run = promisify(execFile)

/** What decides whether other machines reach the VIPs of the public network. */
export type Reach = {
  /** IPv4, then IPv6. */
  cidrs: readonly string[]
  /** This machine's interface on the public network. */
  interfaceName: string
  /** Whether this machine forwards packets of each family. */
  forwards: Readonly<Record<'ipv4' | 'ipv6', boolean>>
  /** A chain of the firewall that drops forwarded packets. */
  droppedBy: Blocking | null
  /** This machine's IPv4 address towards other machines; null when it has none. */
  address: string | null
}

/** Says what other machines need to reach the VIPs, and what the load balancers reach. */
export async function checkReach(instance: Instance): Promise<Finding[]> {
  if (!networkDriverOf(instance).onHost) return []
  const database = openDatabase(instance, 'network', 'doctor')
  try {
    const cidrs = ((await findBuiltInNetworks(database))?.public.subnets ?? []).map(({ cidr }) => cidr)
    if (cidrs.length === 0) return []
    const ruleset = await readRuleset()
    const routes = await run('ip', ['-j', '-4', 'route', 'show', 'default'], { timeout: 10_000 })
    const id = requireInstanceId(instance.directory)
    const interfaceName = hostLegName(id, 'pub')
    const reach = {
      cidrs,
      interfaceName,
      forwards: { ipv4: await forwards('ipv4'), ipv6: await forwards('ipv6') },
      droppedBy: blockingChain(ruleset, 'forward', { interfaceName }),
      address: await addressTowards(routes.stdout),
    }
    const { network, health_manager } = instance.config
    return [
      ...heartbeatFindings(ruleset, hostLegName(id, 'mgmt'), health_manager.port),
      reachFinding(reach),
      outsideFinding(reach, network.outside),
    ]
  } finally {
    await database.destroy()
  }
}

const SWITCHES = { ipv4: 'net.ipv4.ip_forward', ipv6: 'net.ipv6.conf.all.forwarding' } as const

/** Whether the firewall keeps what amphorae say from this machine. Pure. */
export function heartbeatFindings(ruleset: Ruleset, interfaceName: string, port: number): Finding[] {
  const blocking = blockingChain(ruleset, 'input', { interfaceName, port })
  if (blocking === null) return []
  const text = `the firewall drops what amphorae send to this machine (${blocking.chain}): their heartbeats and their requests for keys`
  return [fault('firewall', text, passCommands(blocking, 'input', interfaceName).join('\n    '))]
}

/** The families of the subnets that this machine does not forward. */
const notForwarded = ({ cidrs, forwards }: Reach): ('ipv4' | 'ipv6')[] =>
  [...new Set(cidrs.map(cidr => (cidr.includes(':') ? 'ipv6' : 'ipv4')))].filter(family => !forwards[family])

const noneOf = (names: readonly string[]): string =>
  names.length === 1 ? `no ${names[0]}` : `neither ${names.join(' nor ')}`

const NAMES = { ipv4: 'IPv4', ipv6: 'IPv6' } as const

/** Pure. Always a note: on this machine itself the VIPs work. */
export function reachFinding(reach: Reach): Finding {
  const { cidrs, interfaceName, droppedBy, address } = reach
  const missing = notForwarded(reach)
  const all = cidrs.join(' and ')
  const via = (cidr: string) => (cidr.includes(':') ? 'ITS-IPV6-ADDRESS' : (address ?? 'THE-ADDRESS-OF-THIS-MACHINE'))
  const steps = [
    ...missing.map(family => `sysctl -w ${SWITCHES[family]}=1`),
    ...(droppedBy === null ? [] : passCommands(droppedBy, 'forward', interfaceName)),
    `on each other machine: ${cidrs.map(cidr => `ip route add ${cidr} via ${via(cidr)}`).join('; ')}`,
  ]
  const why = [
    ...(missing.length === 0 ? [] : [`this machine forwards ${noneOf(missing.map(family => NAMES[family]))}`]),
    ...(droppedBy === null ? [] : [`the firewall drops forwarded packets (${droppedBy.chain})`]),
  ]
  const text =
    why.length === 0
      ? `other machines need a route to the VIPs in ${all}`
      : `other machines cannot reach the VIPs in ${all}: ${why.join(', and ')}`
  return { ...note('reach', text), remedy: steps.join('\n    ') }
}

/**
 * What load balancers reach beyond their networks. Pure.
 * @param outside `network.outside`
 */
export function outsideFinding(reach: Reach, outside: boolean | undefined): Finding {
  if (outside !== true) {
    const text = 'load balancers reach members on their own networks only'
    const remedy = 'to let them reach what this machine reaches: krater settings --restart network.outside=true'
    return outside === undefined ? { ...note('outside', text), remedy } : ok('outside', text)
  }
  const { droppedBy, interfaceName } = reach
  if (droppedBy !== null) {
    const text = `load balancers reach nothing beyond their networks: the firewall drops forwarded packets (${droppedBy.chain})`
    return fault('outside', text, passCommands(droppedBy, 'forward', interfaceName).join('\n    '))
  }
  const [missing] = notForwarded(reach)
  if (missing === undefined) return ok('outside', 'load balancers reach what this machine reaches')
  const text = `load balancers reach no ${NAMES[missing]} beyond their networks: this machine does not forward it`
  return fault('outside', text, 'krater up --detach, which turns forwarding on and keeps it on')
}

const routesSchema = z.array(z.object({ gateway: z.string(), prefsrc: z.string().optional() }).partial())
const sourceSchema = z.array(z.object({ prefsrc: z.string() }))

/** @param json output of `ip -j route show default` */
async function addressTowards(json: string): Promise<string | null> {
  const [first] = routesSchema.parse(JSON.parse(json))
  if (first?.gateway === undefined) return null
  const { stdout } = await run('ip', ['-j', '-4', 'route', 'get', first.gateway], { timeout: 10_000 })
  const [source] = sourceSchema.parse(JSON.parse(stdout))
  return source?.prefsrc ?? null
}
