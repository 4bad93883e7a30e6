import type { Database } from '../../../database/connection.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { badRequest } from '../../../http/errors.js'
import {
  checkProfileData,
  enabledProvider,
  isSameProvider,
  type ProviderCapabilities,
  refuseUnsupported,
} from '../../schema/capabilities.js'
import { invalid, missingReference } from '../../schema/faults.js'
import { isTexts, readProfileData } from '../../schema/profile-keys.js'
import type { Service } from '../../schema/service.js'
import { availabilityZone } from '../availability-zones/resource.js'
import { flavor } from '../flavors/resource.js'

/** Attributes of a create body that decide the provider and the placement. */
export type PlacementRequest = {
  provider: string | null
  flavor_id: string | null
  /** Name of the flavor. */
  flavor: string | null
  availability_zone: string | null
}

export type Placement = {
  provider: ProviderCapabilities
  columns: {
    provider: string
    flavor_id: string | null
    availability_zone: string | null
    topology: 'SINGLE' | 'ACTIVE_STANDBY'
    vip_vnic_type: 'normal' | 'direct'
  }
  flavorData: Data
  zoneData: Data
}

type Data = Readonly<Record<string, unknown>>

/**
 * Finds the provider, flavor and availability zone of a new load balancer. The flavor selects the provider
 * unless the request names one.
 * @throws ApiError 400 for unknown, disabled or incompatible objects
 */
export async function placeLoadBalancer(
  { database, providers, config }: Service,
  request: PlacementRequest,
): Promise<Placement> {
  const chosen = await findFlavor(database, request)
  const zone = await findZone(database, request.availability_zone)
  const provider =
    pickProvider(providers, request.provider, chosen) ?? enabledProvider(providers, config.default_provider)
  const flavorData = profileData(chosen)
  const topology = flavorData.loadbalancer_topology
  return {
    provider,
    columns: {
      provider: provider.name,
      flavor_id: chosen?.id ?? null,
      availability_zone: zone?.name ?? null,
      topology: topology === 'SINGLE' || topology === 'ACTIVE_STANDBY' ? topology : config.topology,
      vip_vnic_type: flavorData.sriov_vip === true ? 'direct' : 'normal',
    },
    flavorData,
    zoneData: profileData(zone),
  }
}

/** @throws ApiError 400 when the availability zone excludes the VIP network, or an SR-IOV VIP has security groups */
export function checkPlacedVip(
  { columns, zoneData }: Placement,
  networkId: string,
  { vip_sg_ids }: { vip_sg_ids: readonly string[] },
): void {
  const networks = zoneData.valid_vip_networks
  if (isTexts(networks) && !networks.includes(networkId)) {
    throw invalid(`Availability zone ${columns.availability_zone} does not allow VIPs on network ${networkId}.`)
  }
  if (columns.vip_vnic_type === 'direct' && vip_sg_ids.length > 0) {
    throw invalid('A VIP on an SR-IOV virtual function cannot have security groups.')
  }
}

/**
 * @throws ApiError 501 when the provider does not support the flavor or the availability zone, 400 when there are no
 *   machines for the two
 */
export function refuseUnsupportedPlacement({ provider, flavorData, zoneData, columns }: Placement): void {
  if (columns.flavor_id !== null) checkProfileData(provider, provider.flavorKeys, flavor, flavorData)
  refuseUnsupported(provider, flavor, flavorData)
  if (columns.availability_zone !== null) {
    checkProfileData(provider, provider.availabilityZoneKeys, availabilityZone, zoneData)
  }
  refuseUnsupported(provider, availabilityZone, zoneData)
  const problem = provider.machineProblem?.(flavorData, zoneData) ?? null
  if (problem !== null) throw invalid(problem)
}

type Found = { name: string; enabled: boolean; data: string }
type FoundFlavor = Found & { id: string; provider_name: string }

async function findFlavor(
  database: Database,
  { flavor_id: id, flavor: name }: PlacementRequest,
): Promise<FoundFlavor | null> {
  if (id !== null && name !== null) throw invalid('flavor and flavor_id are mutually exclusive.')
  if (id === null && name === null) return null
  const found = await maybeOne(
    database,
    sql<FoundFlavor>`
      SELECT flavor.id, flavor.name, flavor.enabled, profile.provider_name, profile.flavor_data AS data
        FROM flavor JOIN flavor_profile profile ON profile.id = flavor.flavor_profile_id
       WHERE ${id === null ? sql`flavor.name = ${name}` : sql`flavor.id = ${id}`}`,
  )
  return requireEnabled(found, flavor.label, 'flavor', id ?? name ?? '')
}

async function findZone(database: Database, name: string | null): Promise<Found | null> {
  if (name === null) return null
  const found = await maybeOne(
    database,
    sql<Found>`
      SELECT zone.name, zone.enabled, profile.availability_zone_data AS data
        FROM availability_zone zone JOIN availability_zone_profile profile ON profile.id = zone.availability_zone_profile_id
       WHERE zone.name = ${name}`,
  )
  return requireEnabled(found, availabilityZone.label, 'availability_zone', name)
}

function requireEnabled<T extends Found>(found: T | undefined, label: string, option: string, given: string): T {
  if (found === undefined) throw missingReference(label, given)
  if (!found.enabled) throw badRequest(`The selected ${option} is not allowed in this deployment: ${given}`)
  return found
}

function pickProvider(
  providers: readonly ProviderCapabilities[],
  named: string | null,
  chosen: FoundFlavor | null,
): ProviderCapabilities | null {
  const requested = named === null ? null : enabledProvider(providers, named)
  if (chosen === null) return requested
  const flavorProvider = enabledProvider(providers, chosen.provider_name)
  if (requested !== null && !isSameProvider(requested, flavorProvider)) {
    throw badRequest(`Flavor '${chosen.name}' is not compatible with provider '${requested.name}'`)
  }
  return requested ?? flavorProvider
}

const profileData = (found: Found | null): Data => (found === null ? {} : (readProfileData(found.data) ?? {}))
