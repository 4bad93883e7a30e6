import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import * as z from 'zod'
import { type Finding, note } from '../../../checks/finding.js'
import { findBuiltInNetworks } from '../../../network/bootstrap.js'
import { networkDriverOf, requireInstanceId } from '../../wiring/drivers.js'
import { hostLegName } from '../../wiring/host-networks.js'
import { type Instance, openDatabase } from '../../wiring/instance.js'

const run = promisify(execFile)

/** What decides whether other machines reach the VIPs of the public network. */
export type Reach = {
  cidr: string
  /** This machine's interface on the public network. */
  interfaceName: string
  /** Whether this machine forwards IPv4 packets. */
  forwards: boolean
  /** A chain of the firewall that drops forwarded packets, such as `ip filter FORWARD`. */
  droppedBy: string | null
  /** This machine's address towards other machines; null when it has none. */
  address: string | null
}

/** Says what other machines need to reach the VIPs. */
export async function checkReach(instance: Instance): Promise<Finding[]> {
  if (!networkDriverOf(instance).onHost) return []
  const database = openDatabase(instance, 'network', 'doctor')
  try {
    const [subnet] = (await findBuiltInNetworks(database))?.public.subnets ?? []
    if (subnet === undefined) return []
    const forwards = readFileSync('/proc/sys/net/ipv4/ip_forward', 'utf8').trim() === '1'
    const chains = await run('nft', ['-j', 'list', 'chains'], { timeout: 10_000 })
    const routes = await run('ip', ['-j', '-4', 'route', 'show', 'default'], { timeout: 10_000 })
    const interfaceName = hostLegName(requireInstanceId(instance.directory), 'pub')
    const droppedBy = droppingChain(chains.stdout)
    const address = await addressTowards(routes.stdout)
    return [reachFinding({ cidr: subnet.cidr, interfaceName, forwards, droppedBy, address })]
  } finally {
    await database.destroy()
  }
}

/** Pure. Always a note: on this machine itself the VIPs work. */
export function reachFinding({ cidr, interfaceName, forwards, droppedBy, address }: Reach): Finding {
  const route = `on each other machine: ip route add ${cidr} via ${address ?? 'THE-ADDRESS-OF-THIS-MACHINE'}`
  const steps = [
    ...(forwards ? [] : ['sysctl -w net.ipv4.ip_forward=1']),
    ...(droppedBy === null
      ? []
      : [`iptables -I FORWARD -i ${interfaceName} -j ACCEPT`, `iptables -I FORWARD -o ${interfaceName} -j ACCEPT`]),
    route,
  ]
  const why = [
    ...(forwards ? [] : ['this machine forwards no packets']),
    ...(droppedBy === null ? [] : [`the firewall drops forwarded packets (${droppedBy})`]),
  ]
  const text =
    why.length === 0
      ? `other machines need a route to the VIPs in ${cidr}`
      : `other machines cannot reach the VIPs in ${cidr}: ${why.join(', and ')}`
  return { ...note('reach', text), remedy: steps.join('\n    ') }
}

const chainsSchema = z.object({ nftables: z.array(z.object({ chain: z.unknown() }).partial()) })
const droppingSchema = z.object({
  family: z.enum(['ip', 'inet']),
  table: z.string(),
  name: z.string(),
  hook: z.literal('forward'),
  policy: z.literal('drop'),
})

/** The first base chain that drops forwarded packets by default. Pure. @param json output of `nft -j list chains` */
export function droppingChain(json: string): string | null {
  const found = chainsSchema
    .parse(JSON.parse(json))
    .nftables.flatMap(({ chain }) => droppingSchema.safeParse(chain).data ?? [])
  const [first] = found
  return first === undefined ? null : `${first.family} ${first.table} ${first.name}`
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
