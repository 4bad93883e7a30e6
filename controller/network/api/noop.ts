import { randomUUID } from 'node:crypto'
import type { Caller } from '../../identity/caller.js'
import { noopId, noopNetwork, noopPort, noopSubnet } from '../noop/driver.js'
import { isUuid } from '../visibility.js'
import { parseAttributes, requireAttributes } from './body.js'
import type { Listing } from './listing.js'
import { createSchema as networkSchema, presentNetwork } from './networks.js'
import { notFound, type Singular } from './neutron-error.js'
import { createSchema as portSchema, presentPort } from './ports.js'
import { checkRevision, type Item, ownerOf, type Resource, requireWriter } from './resource.js'
import { presentSubnet, createSchema as subnetSchema } from './subnets.js'

const CREATED_AT = new Date('2026-01-01T00:00:00Z')
const REVISION = 1

const projectIdOf = (caller: Caller) => caller.project?.id ?? ''

const common = (id: string, projectId: string, name: string) => ({
  id,
  project_id: projectId,
  name,
  description: '',
  tags: [],
  created_at: CREATED_AT,
  updated_at: CREATED_AT,
  revision_number: REVISION,
})

const PRESENT: Record<Singular, (id: string, projectId: string, name: string) => Item> = {
  network: (id, projectId, name) => {
    const { mtu, subnetIds } = noopNetwork(id, projectId)
    const facts = { admin_state_up: true, shared: true, external: false, built_in: null }
    return presentNetwork({ ...common(id, projectId, name), ...facts, mtu, subnets: [...subnetIds] })
  },
  subnet: (id, projectId, name) => {
    const { networkId, ipVersion, cidr, gatewayIp } = noopSubnet(id, projectId)
    return presentSubnet({
      ...common(id, projectId, name),
      network_id: networkId,
      ip_version: ipVersion,
      cidr,
      gateway_ip: gatewayIp,
      enable_dhcp: true,
      ipv6_ra_mode: null,
      ipv6_address_mode: null,
      dns_nameservers: [],
      host_routes: [],
      allocation_pools: [],
      network_built_in: null,
    })
  },
  port: (id, projectId, name) => {
    const { networkId, macAddress, fixedIps } = noopPort(id, projectId)
    return presentPort({
      ...common(id, projectId, name),
      network_id: networkId,
      network_project_id: projectId,
      admin_state_up: true,
      mac_address: macAddress,
      device_id: '',
      device_owner: '',
      status: 'DOWN',
      allowed_addresses: [],
      fixed_ips: fixedIps.map(({ subnetId, address }) => ({ subnet_id: subnetId, ip_address: address })),
    })
  },
}

/** An example of an object in answers. */
export const noopItem = (singular: Singular): Item => PRESENT[singular](noopId(singular, 'name', ''), '', '')

const SCHEMAS = { network: networkSchema, subnet: subnetSchema, port: portSchema }
const REQUIRED: Record<Singular, string[]> = { network: [], subnet: ['network_id', 'cidr'], port: ['network_id'] }

/**
 * The noop driver's resource: every requested ID or name exists, and nothing is stored. A name always maps to the same
 * ID. A list without a filter by ID or name is empty.
 */
export function createNoopResource(singular: Singular): Resource {
  const present = PRESENT[singular]
  const show = async (caller: Caller, id: string) =>
    isUuid(id) ? present(id.toLowerCase(), projectIdOf(caller), '') : null

  return {
    singular,
    plural: `${singular}s`,
    list: async (caller, listing) => ({ items: itemsFor(caller, listing), hasNext: false, hasPrevious: false }),
    show,
    create: async (caller, bodies) => {
      requireWriter(caller, `create_${singular}`)
      return bodies.map(body => {
        requireAttributes(body, REQUIRED[singular])
        const attributes = parseAttributes(SCHEMAS[singular], body)
        const owner = ownerOf(caller, attributes, `create_${singular}`)
        return { ...present(randomUUID(), owner, ''), ...wireValues(attributes), project_id: owner, tenant_id: owner }
      })
    },
    update: async ({ caller, id, revision }, body) => {
      requireWriter(caller, `update_${singular}`)
      const item = await show(caller, id)
      if (item === null) throw notFound(singular, id)
      checkRevision(revision, REVISION)
      return { ...item, ...wireValues(parseAttributes(SCHEMAS[singular].partial(), body)) }
    },
    remove: async ({ caller, id, revision }) => {
      requireWriter(caller, `delete_${singular}`)
      if (!isUuid(id)) throw notFound(singular, id)
      checkRevision(revision, REVISION)
    },
    retag: async ({ caller, id, revision }, change) => {
      requireWriter(caller, `update_${singular}s_tags`)
      if (!isUuid(id)) throw notFound(singular, id)
      checkRevision(revision, REVISION)
      return change([])
    },
  }

  function itemsFor(caller: Caller, { filters, marker }: Listing): Item[] {
    if (marker !== null) return []
    const ids = filters.get('id')
    if (ids !== undefined) return [...new Set(ids.filter(isUuid))].map(id => present(id, projectIdOf(caller), ''))
    const names = [...new Set(filters.get('name') ?? [])]
    return names.map(name => present(noopId(singular, 'name', name), projectIdOf(caller), name))
  }
}

/** Parsed attributes as answers show them: a parsed CIDR becomes its text. */
function wireValues(attributes: Record<string, unknown>): Record<string, unknown> {
  const { cidr, ...rest } = attributes
  return typeof cidr === 'object' && cidr !== null && 'text' in cidr ? { ...rest, cidr: cidr.text } : rest
}
