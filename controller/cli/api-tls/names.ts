import { isIP } from 'node:net'
import { hostname, type NetworkInterfaceInfo, networkInterfaces } from 'node:os'
import { type GeneralName, isDnsName } from '../../../x509/encoding/general-names.js'
import type { Configuration } from '../../config/schema.js'

/** More than these would make handshakes slow. A machine with many bridges has many addresses. */
const MAX_NAMES = 64

const LOCAL = ['localhost', '127.0.0.1', '::1']
const WILDCARDS: readonly string[] = ['0.0.0.0', '::']

/** This machine's name and addresses. */
export type Machine = { name: string; addresses: readonly string[] }

/** The names and addresses by which clients reach the APIs: where they listen, their public URLs, and this machine's. */
export function serverNames(
  { identity, network, load_balancer, key_manager, api }: Configuration,
  machine: Machine,
): GeneralName[] {
  const services = [identity, load_balancer, key_manager, network]
  const hosts = services.map(({ host }) => host)
  const names = [
    ...api.tls.names,
    ...services.flatMap(({ public_url: url }) => (url === undefined ? [] : [hostIn(url)])),
    ...hosts.filter(host => !WILDCARDS.includes(host)),
    ...LOCAL,
    ...(hosts.some(host => WILDCARDS.includes(host)) ? [machine.name, ...machine.addresses] : []),
  ]
  const distinct = [...new Set(names.map(name => name.toLowerCase().replace(/%.*$/, '')))]
  return distinct.flatMap(generalName).slice(0, MAX_NAMES)
}

const generalName = (value: string): GeneralName[] =>
  isIP(value) !== 0 ? [{ kind: 'ip', value }] : isDnsName(value) ? [{ kind: 'dns', value }] : []

/** The host of a URL: a name, or an address without brackets. */
export const hostIn = (url: string): string => new URL(url).hostname.replace(/^\[|\]$/g, '')

export function thisMachine(interfaces: NodeJS.Dict<NetworkInterfaceInfo[]> = networkInterfaces()): Machine {
  const all = Object.values(interfaces).flatMap(list => list ?? [])
  const usable = all.filter(({ internal, address }) => !internal && !address.toLowerCase().startsWith('fe80:'))
  return { name: hostname(), addresses: usable.map(({ address }) => address) }
}
