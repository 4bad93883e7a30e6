import { randomUUID } from 'node:crypto'
import type { Caller } from '../../identity/caller.js'
import { noopId, noopNetwork, noopPort, noopSubnet } from '../noop/driver.js'
import { isUuid } from '../visibility.js'
import { parseAttributes, requireAttributes } from './body.js'
import type { ChangeableKind, Singular } from './kinds.js'
import type { Listing } from './listing.js'
import { presentNetwork } from './networks/networks.js'
import { presentSubnet } from './networks/subnets.js'
import { notFound } from './neutron-error.js'
import { presentPort } from './ports/port-source.js'
import {
  type ChangeableResource,
  checkRevision,
  type Item,
  ownerOf,
  type Resource,
  requireWriter,
  type Target,
} from './resource.js'
import type { RouterActions } from './routers/actions.js'
import { presentFloatingIp } from './routers/floating-ips.js'
import { type Interface, requestedInterface } from './routers/interfaces.js'
import { presentRouter } from './routers/router-source.js'
import { routesSchema } from './routers/routers.js'
import { CREATE_SCHEMAS, UPDATE_SCHEMAS } from './schemas.js'
import { presentGroup } from './security-groups/groups.js'
import { presentRule } from './security-groups/rules.js'

/** Whose project objects have, and who sees which attributes. */
type Viewer = Pick<Caller, 'project' | 'roles'>

const CREATED_AT = new Date('2026-01-01T00:00:00Z')
const REVISION = 1

const projectIdOf = (caller: Viewer) => caller.project?.id ?? ''

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

const PRESENT: Record<Singular, (id: string, caller: Viewer, name: string) => Item> = {
  network: (id, caller, name) => {
    const { mtu, subnetIds } = noopNetwork(id, projectIdOf(caller))
    const facts = { admin_state_up: true, shared: true, external: false, built_in: null, port_security_enabled: true }
    const provider = { network_type: 'local', physical_network: null, segmentation_id: null } as const
    const row = { ...common(id, projectIdOf(caller), name), ...facts, ...provider, mtu, subnets: [...subnetIds] }
    return presentNetwork(row, caller)
  },
  subnet: (id, caller, name) => {
    const projectId = projectIdOf(caller)
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
      network_project_id: projectId,
    })
  },
  port: (id, caller, name) => {
    const projectId = projectIdOf(caller)
    const { networkId, macAddress, fixedIps } = noopPort(id, projectId)
    return presentPort({
      ...common(id, projectId, name),
      network_id: networkId,
      network_project_id: projectId,
      network_built_in: null,
      admin_state_up: true,
      mac_address: macAddress,
      device_id: '',
      device_owner: '',
      status: 'DOWN',
      allowed_addresses: [],
      allowed_address_pairs: [],
      security_groups: [],
      port_security_enabled: true,
      filtered: false,
      fixed_ips: fixedIps.map(({ subnetId, address }) => ({ subnet_id: subnetId, ip_address: address })),
    })
  },
  router: (id, caller, name) =>
    presentRouter({
      ...common(id, projectIdOf(caller), name),
      admin_state_up: true,
      enable_snat: true,
      routes: [],
      gateway: null,
    }),
  floatingip: (id, caller) =>
    presentFloatingIp({
      ...common(id, projectIdOf(caller), ''),
      floating_network_id: noopId('network', id),
      floating_port_id: noopId('port', id),
      floating_ip_address: noopPort(id, '').fixedIps[0]?.address ?? '',
      fixed_ip_address: null,
      router_id: null,
      port_id: null,
      port_details: null,
    }),
  security_group: (id, caller, name) =>
    presentGroup({ ...common(id, projectIdOf(caller), name), stateful: true, is_default: false, rules: [] }),
  security_group_rule: (id, caller) =>
    presentRule({
      ...common(id, projectIdOf(caller), ''),
      security_group_id: noopId('security_group', id),
      direction: 'ingress',
      ethertype: 'IPv4',
      protocol: null,
      port_range_min: null,
      port_range_max: null,
      remote_ip_prefix: null,
      remote_group_id: null,
    }),
}

/** An administrator without a project, who sees every attribute. */
const SEES_ALL: Viewer = { project: null, roles: ['admin'] }

/** An example of an object in answers. */
export const noopItem = (singular: Singular): Item => PRESENT[singular](noopId(singular, 'name', ''), SEES_ALL, '')

const REQUIRED: Readonly<Record<Singular, readonly string[]>> = {
  network: [],
  subnet: ['network_id', 'cidr'],
  port: ['network_id'],
  router: [],
  floatingip: ['floating_network_id'],
  security_group: [],
  security_group_rule: ['security_group_id', 'direction'],
}

/**
 * The noop driver's resource: every requested ID or name exists, and nothing is stored. A name always maps to the same
 * ID. A list without a filter by ID or name is empty.
 */
export function noopResource(singular: Singular): Resource {
  const present = PRESENT[singular]
  const show = async (caller: Caller, id: string) => (isUuid(id) ? present(id.toLowerCase(), caller, '') : null)

  return {
    list: async (caller, listing) => ({ items: itemsFor(caller, listing), hasNext: false, hasPrevious: false }),
    show,
    create: async (caller, bodies) => {
      requireWriter(caller, `create_${singular}`)
      return bodies.map(body => {
        requireAttributes(body, REQUIRED[singular])
        const attributes = parseAttributes(CREATE_SCHEMAS[singular], body)
        const owner = ownerOf(caller, attributes, `create_${singular}`)
        return { ...present(randomUUID(), caller, ''), ...wireValues(attributes), project_id: owner, tenant_id: owner }
      })
    },
    remove: async target => {
      found(singular, target, `delete_${singular}`)
    },
  }

  function itemsFor(caller: Caller, { filters, marker }: Listing): Item[] {
    if (marker !== null) return []
    const ids = filters.get('id')
    if (ids !== undefined) return [...new Set(ids.filter(isUuid))].map(id => present(id, caller, ''))
    const names = [...new Set(filters.get('name') ?? [])]
    return names.map(name => present(noopId(singular, 'name', name), caller, name))
  }
}

/** The same for objects that can be changed. */
export const changeableNoopResource = (singular: ChangeableKind): ChangeableResource => ({
  ...noopResource(singular),
  update: async (target, body) => {
    const item = found(singular, target, `update_${singular}`)
    return { ...item, ...wireValues(parseAttributes(UPDATE_SCHEMAS[singular], body)) }
  },
  retag: async (target, change) => {
    found(singular, target, `update_${singular}s_tags`)
    return change([])
  },
})

/** The object that a caller may change. @throws NeutronError 403, 404, 412 */
function found(singular: Singular, { caller, id, revision }: Target, rule: string): Item {
  requireWriter(caller, rule)
  if (!isUuid(id)) throw notFound(singular, id)
  checkRevision(revision, REVISION)
  return PRESENT[singular](id.toLowerCase(), caller, '')
}

/** Every router has every interface. */
export const noopRouterActions: RouterActions = {
  addInterface: async (target, body) => interfaceOf(target, body, 'add_router_interface'),
  removeInterface: async (target, body) => interfaceOf(target, body, 'remove_router_interface'),
  changeRoutes: async (target, action, body) => {
    const router = found('router', target, action)
    const { routes } = parseAttributes(routesSchema, body)
    return action === 'add_extraroutes' ? { ...router, routes } : router
  },
}

function interfaceOf(target: Target, body: unknown, rule: string): Interface {
  const { id } = found('router', target, rule)
  const { subnet_id = noopId('subnet', id), port_id = noopId('port', id, subnet_id) } = requestedInterface(body)
  const projectId = projectIdOf(target.caller)
  const project = { tenant_id: projectId, project_id: projectId }
  const { networkId } = noopSubnet(subnet_id, projectId)
  return { id, ...project, port_id, network_id: networkId, subnet_id, subnet_ids: [subnet_id] }
}

/** Parsed attributes as answers show them: a parsed CIDR becomes its text. */
function wireValues(attributes: Record<string, unknown>): Record<string, unknown> {
  const { cidr, ...rest } = attributes
  return typeof cidr === 'object' && cidr !== null && 'text' in cidr ? { ...rest, cidr: cidr.text } : rest
}
