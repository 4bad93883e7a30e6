import { createHash } from 'node:crypto'
import { isIPv6 } from 'node:net'
import type { ExpectedIp, Network, NetworkDriver, Port, Subnet } from '../driver.js'

/** The network of every noop subnet, so that any two of them can serve one load balancer. */
const NETWORK_ID = '00000000-0000-4000-8000-000000000001'
const MANAGEMENT_SUBNET_ID = '00000000-0000-4000-8000-000000000002'
/** Prefix of the IDs of IPv6 subnets. All others are IPv4, unless a request has an IPv6 address on them. */
const IPV6_ID_PREFIX = '00000006-'

const digest = (...parts: readonly string[]): Buffer => createHash('sha256').update(parts.join('\0')).digest()

/** A version 4 UUID derived from the parts. */
export function noopId(...parts: readonly string[]): string {
  const hex = digest('id', ...parts).toString('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/** An address in the documentation ranges (RFC 5737, RFC 3849), derived from the seed. */
function noopAddress(seed: string, ipVersion: 4 | 6): string {
  const bytes = digest('address', seed)
  if (ipVersion === 4) return `203.0.113.${2 + (bytes.readUInt16BE(0) % 252)}`
  const [a, b, c] = [0, 2, 4].map(offset => bytes.readUInt16BE(offset).toString(16).padStart(4, '0').replace(/^0/, '1'))
  return `2001:db8::${a}:${b}:${c}`
}

const ANY_IP: ExpectedIp = { subnetId: null, address: null }

const ipVersionOf = (subnetId: string): 4 | 6 => (subnetId.startsWith(IPV6_ID_PREFIX) ? 6 : 4)

export function noopNetwork(id: string, projectId: string): Network {
  const subnetIds = [noopId('subnet', id), `${IPV6_ID_PREFIX}${noopId('subnet6', id).slice(9)}`]
  // As in Octavia's noop driver, the network contains every subnet.
  return {
    id,
    projectId,
    shared: true,
    mtu: 1500,
    subnetIds: Object.assign(subnetIds, { includes: () => true }),
    isPhysical: false,
  }
}

/** @param expected an address on it, which decides its family */
export function noopSubnet(id: string, projectId: string, expected: string | null = null): Subnet {
  const ipVersion = expected === null ? ipVersionOf(id) : isIPv6(expected) ? 6 : 4
  return {
    id,
    networkId: NETWORK_ID,
    projectId,
    ipVersion,
    // Contains every address a caller may request.
    cidr: ipVersion === 4 ? '0.0.0.0/0' : '::/0',
    gatewayIp: ipVersion === 4 ? '203.0.113.1' : '2001:db8::1',
    hostRoutes: [],
    overlapsManagement: false,
  }
}

/** @param expected the addresses that a request expects it to have; by default one */
export function noopPort(id: string, projectId: string, expected: readonly ExpectedIp[] = [ANY_IP]): Port {
  const fixedIps = expected.map(({ subnetId, address }, index) => {
    const subnet = subnetId ?? noopId('subnet', id)
    return {
      subnetId: subnet,
      address: address ?? noopAddress(index === 0 ? id : `${id} ${index}`, ipVersionOf(subnet)),
    }
  })
  return {
    id,
    networkId: NETWORK_ID,
    projectId,
    name: '',
    macAddress: `fa:16:3e${digest('mac', id).toString('hex').slice(0, 6).replace(/../g, ':$&')}`,
    deviceId: '',
    deviceOwner: '',
    fixedIps,
    allowedAddresses: [],
    securityGroups: [],
  }
}

/**
 * Like Octavia's noop driver: every network, subnet and port exists, whatever its ID. It stores and does nothing. All
 * processes give the same answers, which derive from the IDs.
 */
export function createNoopNetworkDriver(): NetworkDriver {
  return {
    name: 'noop',
    reachesHost: false,
    findNetwork: async (caller, id) => noopNetwork(id, caller.project?.id ?? ''),
    findSubnet: async (caller, id, expected) => noopSubnet(id, caller.project?.id ?? '', expected),
    findPort: async (caller, id, expected) => noopPort(id, caller.project?.id ?? '', expected),
    findSecurityGroup: async (_caller, id) => ({ id }),
    findQosPolicy: async (_caller, id) => ({ id }),
    network: async id => noopNetwork(id, ''),
    subnets: async ids => ids.map(id => noopSubnet(id, '')),
    subnetOf: async () => null,
    freeAddresses: async () => Number.POSITIVE_INFINITY,
    port: async id => noopPort(id, ''),
    ensurePort: async request => {
      const id = noopId('port', request.deviceId, request.deviceOwner, request.name)
      return {
        ...noopPort(id, request.projectId),
        networkId: request.networkId,
        name: request.name,
        deviceId: request.deviceId,
        deviceOwner: request.deviceOwner,
        allowedAddresses: [...(request.allowedAddresses ?? [])],
        fixedIps: request.fixedIps.map(({ subnetId, address }, index) => ({
          subnetId,
          address: address ?? noopAddress(`${id} ${index}`, ipVersionOf(subnetId)),
        })),
      }
    },
    bindPort: async () => undefined,
    setSecurityGroups: async () => undefined,
    releaseAddresses: async () => undefined,
    deletePort: async () => undefined,
    portsOwnedBy: async () => [],
    boundPorts: async () => [],
    portsOf: async () => [],
    managementNetwork: async () => ({
      network: { ...noopNetwork(NETWORK_ID, ''), subnetIds: [MANAGEMENT_SUBNET_ID] },
      subnet: { ...noopSubnet(MANAGEMENT_SUBNET_ID, ''), cidr: '192.0.2.0/24', gatewayIp: '192.0.2.1' },
      controllerAddress: '127.0.0.1',
    }),
  }
}
