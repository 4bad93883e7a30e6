import { isDeepStrictEqual } from 'node:util'
import * as z from 'zod'
import { PORT_OWNER } from '../../network/driver.js'
import type { Filters } from '../../network/local/security-groups/filters.js'
import { identityOf } from '../../process/process-identity.js'
import { type ApiClient, ApiRefusal, signIn } from '../api-client.js'
import { OperatorError } from '../operator-error.js'
import {
  ATTACHMENT_NAME,
  type AttachmentRecord,
  forgetAttachment,
  readAttachment,
  readAttachments,
  saveAttachment,
} from '../state-directory/attachments.js'
import { fabricOf, portFilters, requireInstanceId } from '../wiring/drivers.js'
import { openDatabase, openInstance } from '../wiring/instance.js'
import { exists, interfaceOnSubnetOf, isInHostNetwork, type Place, plug, removePlace } from './plug.js'

const networkSchema = z.object({
  id: z.string(),
  name: z.string(),
  mtu: z.number().default(1500),
})
type Network = z.output<typeof networkSchema>

const portSchema = z.object({
  id: z.string(),
  network_id: z.string(),
  mac_address: z.string(),
  port_security_enabled: z.boolean().default(true),
  allowed_address_pairs: z.array(z.object({ ip_address: z.string(), mac_address: z.string() })).default([]),
  fixed_ips: z.array(z.object({ ip_address: z.string(), subnet_id: z.string() })).min(1),
})
type Port = z.output<typeof portSchema>

export type AttachmentRequest = {
  name: string
  /** Whose ports and networks these are, as clouds.yaml names the user. */
  cloud: AttachmentRecord['cloud']
  /** Name or ID of the network. */
  network: string
  /** Null: the network chooses. */
  address: string | null
  /** Names or IDs of the security groups that filter the port; without any, a new port is open. */
  securityGroups: readonly string[]
  /** Null: a namespace that Krater creates. */
  place: Place | null
}

/**
 * Gives a program of this host a place on a network: a port, plugged into a network namespace. A second run finds
 * what the first one created.
 * @throws OperatorError when the request cannot be met
 */
export async function attach(directory: string, request: AttachmentRequest): Promise<AttachmentRecord> {
  if (!ATTACHMENT_NAME.test(request.name)) {
    throw new OperatorError(
      `"${request.name}" cannot name an attachment. Use 1 to 32 lower-case letters, digits and hyphens, such as web-1.`,
    )
  }
  const place = request.place ?? {
    kind: 'namespace',
    namespace: ownNamespace(directory, request.name),
    created: true,
  }
  const api = await signIn(directory, request.cloud)
  const network = await findNetwork(api, request.network)
  const known = readAttachment(directory, request.name)
  if (known !== null && known.network.id !== network.id) {
    throw new OperatorError(
      `${known.name} is already attached to ${known.network.name}. Detach it first, or choose another name: krater network detach ${known.name}`,
    )
  }
  if (known !== null && known.cloud !== request.cloud) {
    throw new OperatorError(
      `${known.name} belongs to the user ${known.cloud}. Detach it first, or choose another name: krater network detach ${known.name}`,
    )
  }
  if (known !== null && !isSame(known.place, place) && exists(known.place)) {
    throw new OperatorError(
      `${known.name} is already attached in ${describePlace(known.place)}. Detach it first, or choose another name: krater network detach ${known.name}`,
    )
  }
  const { port, created } = await ensurePort(api, network, request)
  const { addresses, gateways } = await addressing(api, port)
  const fabric = fabricOf(directory)
  if (known !== null && known.portId !== port.id) await fabric.detach(known.portId)
  const rival = await interfaceOnSubnetOf(addresses, { place, except: port.mac_address })
  if (rival !== null) {
    if (created) await deletePort(api, port.id)
    throw new OperatorError(
      `${request.name} cannot be attached in ${describePlace(place)}: ${rival.interfaceName} there already has ${rival.address} on the same subnet, and answers would leave by the wrong interface. ${wayOut(directory, request.name, rival.address)}`,
    )
  }
  const record: AttachmentRecord = {
    name: request.name,
    network: { id: network.id, name: network.name, mtu: network.mtu },
    portId: port.id,
    addresses,
    place: keepOwnership(place, known),
    interfaceName: known?.interfaceName ?? 'eth0',
    cloud: request.cloud,
  }
  // Before the interface: after a crash, detaching removes both.
  saveAttachment(directory, record)
  const plugged = {
    network,
    port: {
      id: port.id,
      macAddress: port.mac_address,
      isOpen: !port.port_security_enabled,
      pairs: port.allowed_address_pairs.map(pair => ({ address: pair.ip_address, macAddress: pair.mac_address })),
    },
    addresses,
    gateways,
    place,
  }
  const interfaceName = await plug(fabric, { ...plugged, filters: await filtersOf(directory, port.id) })
  saveAttachment(directory, { ...record, interfaceName })
  return { ...record, interfaceName }
}

/** What to do where `address` already is an interface's on the same subnet. */
function wayOut(directory: string, name: string, address: string): string {
  const records = readAttachments(directory)
  const doubled = records.find(record => record.name === name) ?? records.find(each => each.addresses.includes(address))
  return doubled === undefined
    ? `Use ${address.split('/')[0]}, or attach in another namespace.`
    : `Choose another namespace, or detach first: krater network detach ${doubled.name}`
}

/** Removes an attachment with what attaching it created: interface, namespace and the programs in it, port. */
export async function detach(directory: string, name: string): Promise<AttachmentRecord> {
  const record = requireAttachment(directory, name)
  await deletePort(await signIn(directory, record.cloud), record.portId)
  await unplug(directory, record)
  return record
}

/** @throws OperatorError if there is none of this name */
export function requireAttachment(directory: string, name: string): AttachmentRecord {
  const record = ATTACHMENT_NAME.test(name) ? readAttachment(directory, name) : null
  if (record !== null) return record
  throw new OperatorError(`There is no attachment "${name}". \`krater network list\` shows all.`)
}

/**
 * Removes every attachment from this host, and the namespaces that earlier versions created without a record. Their
 * ports go with the database.
 */
export async function removeAttachments(directory: string): Promise<void> {
  for (const record of readAttachments(directory)) await unplug(directory, record)
  for (const namespace of EARLIER.map(name => ownNamespace(directory, name))) {
    await removePlace({ kind: 'namespace', namespace, created: true })
  }
}

/** Of the demo, before attachments existed. */
const EARLIER = ['web-1', 'web-2']

/**
 * Gives the ports that the demo created before attachments existed the form that `attach` looks for. It then finds
 * them, with their addresses, in the namespaces where they are.
 */
export async function adoptEarlierPorts(directory: string, api: ApiClient, networkName: string): Promise<void> {
  const network = await findNetwork(api, networkName)
  for (const name of EARLIER.filter(each => readAttachment(directory, each) === null)) {
    const query = { name: `krater-demo-${name}`, network_id: network.id, project_id: api.projectId }
    const list = await api.request('network', 'GET', `/v2.0/ports?${new URLSearchParams(query)}`)
    const { ports } = z.object({ ports: z.array(z.object({ id: z.string(), device_id: z.string() })) }).parse(list)
    const unused = ports.find(port => port.device_id === '')
    if (unused === undefined) continue
    await api.request('network', 'PUT', `/v2.0/ports/${unused.id}`, {
      port: { name, device_owner: PORT_OWNER.attachment, device_id: name },
    })
  }
}

const ownNamespace = (directory: string, name: string): string => `krater-${requireInstanceId(directory)}-${name}`

async function unplug(directory: string, record: AttachmentRecord): Promise<void> {
  await removePlace(record.place)
  await fabricOf(directory).detach(record.portId)
  forgetAttachment(directory, record.name)
}

/** Whether the interface of each attachment works. */
export async function attachmentStates(
  directory: string,
): Promise<(AttachmentRecord & { state: 'attached' | 'ended' })[]> {
  const records = readAttachments(directory)
  if (records.length === 0) return []
  const connected = new Set(await fabricOf(directory).connectedPorts())
  return records.map(record => ({
    ...record,
    state: exists(record.place) && connected.has(record.portId) ? 'attached' : 'ended',
  }))
}

/**
 * The place of an existing namespace, or of a process in a container.
 * @throws OperatorError when it is missing or cannot be attached
 */
export function placeOf(into: { namespace: string } | { pid: number }): Place {
  if ('pid' in into) {
    const identity = identityOf(into.pid)
    if (identity === null) throw new OperatorError(`There is no process ${into.pid}. Is its container running?`)
    if (isInHostNetwork(into.pid)) {
      throw new OperatorError(
        `Process ${into.pid} runs in this machine's own network. Only a container or namespace can be attached: the machine would become one of the tenant's.`,
      )
    }
    return { kind: 'process', identity }
  }
  const place: Place = { kind: 'namespace', namespace: into.namespace, created: false }
  if (exists(place)) return place
  throw new OperatorError(
    `There is no network namespace ${into.namespace}. Create it with \`ip netns add ${into.namespace}\`, or leave --namespace out.`,
  )
}

/** A namespace that an earlier run created stays Krater's, even if this run names it. */
function keepOwnership(place: Place, known: AttachmentRecord | null): Place {
  return known !== null && isSame(known.place, place) ? known.place : place
}

const isSame = (one: Place, other: Place): boolean =>
  one.kind === 'namespace' && other.kind === 'namespace'
    ? one.namespace === other.namespace
    : isDeepStrictEqual(one, other)

/** The command that attaches it again, in the same place if that can be known. */
export function attachCommand({ name, network, place, cloud }: AttachmentRecord): string {
  const into = place.kind === 'process' ? ' --pid PID' : place.created ? '' : ` --namespace ${place.namespace}`
  return `krater network attach ${network.name} ${name}${into}${cloud === 'krater' ? '' : ` --cloud ${cloud}`}`
}

export const describePlace = (place: Place): string =>
  place.kind === 'namespace' ? `namespace ${place.namespace}` : `process ${place.identity.pid}`

const findNetwork = (api: ApiClient, nameOrId: string): Promise<Network> =>
  findOne('network', nameOrId, async query => {
    const answer = await api.request('network', 'GET', `/v2.0/networks?${new URLSearchParams(query)}`)
    return z.object({ networks: z.array(networkSchema) }).parse(answer).networks
  })

async function findSecurityGroup(api: ApiClient, nameOrId: string): Promise<string> {
  const { id } = await findOne('security group', nameOrId, async query => {
    const own = new URLSearchParams({ ...query, project_id: api.projectId })
    const answer = await api.request('network', 'GET', `/v2.0/security-groups?${own}`)
    const groups = z.array(z.object({ id: z.string(), name: z.string() }))
    return z.object({ security_groups: groups }).parse(answer).security_groups
  })
  return id
}

type Query = Partial<Record<'id' | 'name', string>>

/** The only object with this ID or, failing that, this name. @throws OperatorError that names what there is */
async function findOne<Found extends { id: string; name: string }>(
  kind: string,
  nameOrId: string,
  list: (query: Query) => Promise<Found[]>,
): Promise<Found> {
  const byId = await list({ id: nameOrId })
  const [found, ...more] = byId.length > 0 ? byId : await list({ name: nameOrId })
  if (found === undefined) {
    const names = (await list({})).map(({ name }) => name).join(', ')
    throw new OperatorError(`There is no ${kind} ${nameOrId} for this user. There are: ${names}.`)
  }
  if (more.length === 0) return found
  const ids = [found, ...more].map(({ id }) => id).join(', ')
  throw new OperatorError(`Several ${kind}s are named ${nameOrId}. Give the ID of one: ${ids}.`)
}

/** The attachment's port: an earlier run's, else a new one. */
async function ensurePort(
  api: ApiClient,
  network: Network,
  { name, address, securityGroups }: AttachmentRequest,
): Promise<{ port: Port; created: boolean }> {
  const groups = await Promise.all(securityGroups.map(group => findSecurityGroup(api, group)))
  const filter = groups.length === 0 ? {} : { security_groups: groups }
  const identity = { network_id: network.id, device_owner: PORT_OWNER.attachment, device_id: name }
  const query = new URLSearchParams({ ...identity, project_id: api.projectId })
  const list = await api.request('network', 'GET', `/v2.0/ports?${query}`)
  const [present] = z.object({ ports: z.array(portSchema) }).parse(list).ports
  if (present === undefined) {
    const fixed = address === null ? {} : { fixed_ips: [{ ip_address: address }] }
    const answer = await api.request('network', 'POST', '/v2.0/ports', {
      port: { name, ...identity, ...fixed, ...filter },
    })
    return { ...z.object({ port: portSchema }).parse(answer), created: true }
  }
  const has = present.fixed_ips.map(({ ip_address }) => ip_address)
  if (address === null || has.includes(address)) {
    if (groups.length > 0) await api.request('network', 'PUT', `/v2.0/ports/${present.id}`, { port: filter })
    return { port: present, created: false }
  }
  throw new OperatorError(
    `${name} has the address ${has.join(', ')}. To give it ${address}, detach it first: krater network detach ${name}`,
  )
}

const subnetSchema = z.object({ id: z.string(), cidr: z.string(), gateway_ip: z.string().nullable() })

/** The port's addresses with the prefix lengths of their subnets, IPv4 first, and a gateway of each family. */
async function addressing(api: ApiClient, port: Port): Promise<{ addresses: string[]; gateways: string[] }> {
  const answer = await api.request('network', 'GET', `/v2.0/subnets?network_id=${port.network_id}`)
  const { subnets } = z.object({ subnets: z.array(subnetSchema) }).parse(answer)
  const isIpv6 = (address: string) => address.includes(':')
  const placed = port.fixed_ips
    .map(({ ip_address: address, subnet_id }) => ({ address, subnet: subnets.find(({ id }) => id === subnet_id) }))
    .sort((a, b) => Number(isIpv6(a.address)) - Number(isIpv6(b.address)))
  const gateways = placed.flatMap(({ subnet }) => subnet?.gateway_ip ?? [])
  return {
    addresses: placed.map(
      ({ address, subnet }) => `${address}/${subnet?.cidr.split('/')[1] ?? (isIpv6(address) ? '128' : '32')}`,
    ),
    gateways: [false, true].flatMap(six => gateways.find(gateway => isIpv6(gateway) === six) ?? []),
  }
}

/** What the port may send and receive; null: everything. */
async function filtersOf(directory: string, portId: string): Promise<Filters | null> {
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'network', 'network attach')
  try {
    return await portFilters(instance, database, portId)
  } finally {
    await database.destroy()
  }
}

async function deletePort(api: ApiClient, id: string): Promise<void> {
  await api.request('network', 'DELETE', `/v2.0/ports/${id}`).catch(error => {
    if (!(error instanceof ApiRefusal) || error.status !== 404) throw error
  })
}
