import { execFile } from 'node:child_process'
import { existsSync, readlinkSync, statSync } from 'node:fs'
import { promisify } from 'node:util'
import { parseCidr } from '../../network/addresses.js'
import type { Fabric } from '../../network/local/fabric.js'
import { links } from '../../network/local/ip-command.js'
import type { Filters } from '../../network/local/security-groups/filters.js'
import type { AddressPair } from '../../network/local/source-guard.js'
import { endProcesses, findProcesses, isAlive } from '../../process/process-identity.js'
import { OperatorError } from '../operator-error.js'
import type { AttachmentRecord } from '../state-directory/attachments.js'

const run = promisify(execFile)
const ip = async (...args: string[]): Promise<string> => (await run('ip', args, { timeout: 10_000 })).stdout

export type Place = AttachmentRecord['place']

/** The port of a network and where it is plugged in. `addresses` have prefix lengths. */
export type Plug = {
  network: { id: string; mtu: number }
  port: { id: string; macAddress: string; pairs?: readonly AddressPair[]; isOpen?: boolean }
  addresses: readonly string[]
  /** Routers of its subnets, at most one of each family: its way to everything else, unless its place has one. */
  gateways?: readonly string[]
  /** What it may send and receive; null: everything. */
  filters?: Filters | null
  place: Place
}

/** Whether the namespace or the process is still there. */
export const exists = (place: Place): boolean =>
  place.kind === 'namespace' ? existsSync(`/run/netns/${place.namespace}`) : isAlive(place.identity)

/**
 * Plugs a port into its place, with its addresses, up. Creates the namespace if it is missing. May be repeated.
 * @returns the interface's name there: the first free one of eth0, eth1 ...
 * @throws IpCommandError, or Error with the message of `ip`
 */
export async function plug(fabric: Fabric, plugged: Plug): Promise<string> {
  const { network, port, addresses, gateways = [], filters = null, place } = plugged
  return withNamespaceName(place, port.id, async namespace => {
    await ip('-n', namespace, 'link', 'set', 'lo', 'up')
    const present = await links(namespace)
    const names = new Set(present.map(({ ifname }) => ifname))
    const free = Array.from({ length: names.size + 1 }, (_, at) => `eth${at}`).find(name => !names.has(name))
    const interfaceName = present.find(({ address }) => address === port.macAddress)?.ifname ?? free ?? 'eth0'
    await fabric.attach({
      networkId: network.id,
      mtu: network.mtu,
      portId: port.id,
      macAddress: port.macAddress,
      addresses: addresses.map(address => address.split('/')[0] ?? address),
      pairs: port.pairs ?? [],
      isOpen: port.isOpen ?? false,
      filters,
      namespace,
      interfaceName,
    })
    for (const address of addresses) {
      // No other machine can have it on a network that Krater manages.
      const atOnce = address.includes(':') ? ['nodad'] : []
      await ip('-n', namespace, 'addr', 'replace', address, 'dev', interfaceName, ...atOnce)
    }
    await ip('-n', namespace, 'link', 'set', interfaceName, 'up')
    for (const gateway of gateways) await addDefaultRoute(namespace, gateway, interfaceName)
    return interfaceName
  })
}

/** Where there is a default route already, of a container's own network for example, it stays the only one. */
async function addDefaultRoute(namespace: string, gateway: string, interfaceName: string): Promise<void> {
  const family = gateway.includes(':') ? '-6' : '-4'
  const present = await ip('-n', namespace, family, 'route', 'show', 'default')
  if (present.trim() !== '') return
  await ip('-n', namespace, family, 'route', 'add', 'default', 'via', gateway, 'dev', interfaceName)
}

/**
 * Finds an interface in `place`, other than the one with the MAC address `except`, that has an address on the subnet of
 * one of `addresses`. All have prefix lengths.
 */
export async function interfaceOnSubnetOf(
  addresses: readonly string[],
  { place, except }: { place: Place; except: string },
): Promise<{ interfaceName: string; address: string } | null> {
  if (!exists(place)) return null
  const [enter, ...words] = entering(place)
  const { stdout } = await run(enter, [...words, 'ip', '-json', 'address', 'show'], { timeout: 10_000 })
  type Row = { ifname: string; address?: string; addr_info: { local: string; prefixlen: number }[] }
  const subnets = addresses.map(address => parseCidr(address)?.text)
  const found = (JSON.parse(stdout) as Row[])
    .filter(row => row.address !== except)
    .flatMap(row => row.addr_info.map(info => ({ ...row, address: `${info.local}/${info.prefixlen}` })))
    .find(({ address }) => subnets.includes(parseCidr(address)?.text))
  return found === undefined ? null : { interfaceName: found.ifname, address: found.address }
}

/** Gives the namespace of a process a name for as long as `work` needs one. */
async function withNamespaceName<T>(place: Place, portId: string, work: (namespace: string) => Promise<T>): Promise<T> {
  if (place.kind === 'namespace') {
    if (!existsSync(`/run/netns/${place.namespace}`)) await ip('netns', 'add', place.namespace)
    requireOtherNetwork(place.namespace)
    return work(place.namespace)
  }
  const name = `krater-plug-${portId.slice(0, 11)}`
  // Left behind by a run that was killed.
  if (existsSync(`/run/netns/${name}`)) await ip('netns', 'delete', name)
  await ip('netns', 'attach', name, String(place.identity.pid))
  try {
    // Another process may have got the pid of one that ended just now.
    if (!isAlive(place.identity)) throw new OperatorError(`Process ${place.identity.pid} has ended.`)
    requireOtherNetwork(name)
    return await work(name)
  } finally {
    await ip('netns', 'delete', name)
  }
}

/** @throws OperatorError for this machine's own network, which would become one of the tenant's */
function requireOtherNetwork(namespace: string): void {
  if (statSync(`/run/netns/${namespace}`).ino !== statSync('/proc/self/ns/net').ino) return
  throw new OperatorError(
    `${namespace} is this machine's own network. Only a container or another namespace can be attached.`,
  )
}

/** Ends the programs in a namespace that Krater created, and removes it. Leaves other places alone. */
export async function removePlace(place: Place): Promise<void> {
  if (place.kind !== 'namespace' || !place.created || !exists(place)) return
  const pids = new Set((await ip('netns', 'pids', place.namespace)).split('\n').filter(Boolean).map(Number))
  await endProcesses(
    findProcesses((_argv, pid) => pids.has(pid)),
    { graceMs: 2_000 },
  )
  await ip('netns', 'delete', place.namespace)
}

/**
 * Whether a process is in the network namespace of this one.
 * @throws OperatorError when the kernel does not tell, even root
 */
export function isInHostNetwork(pid: number): boolean {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync('/proc/self/ns/net')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') throw new OperatorError(`Process ${pid} has ended.`)
    if (code !== 'EACCES' && code !== 'EPERM') throw error
    throw new OperatorError(
      `Process ${pid} cannot be attached: the kernel does not show its network, even to root (${code}), because it has more rights than this command. Give the process of a container that this machine runs.`,
    )
  }
}

/** The words before a command that make it run in this place. */
export const entering = (place: Place): [string, ...string[]] =>
  place.kind === 'namespace'
    ? ['ip', 'netns', 'exec', place.namespace]
    : ['nsenter', `--net=/proc/${place.identity.pid}/ns/net`]
