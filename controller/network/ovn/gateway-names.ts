import { INSTANCE } from '../../ovn/northbound/desired.js'
import type { Northbound } from '../../ovn/northbound/northbound.js'
import type { Southbound } from '../../ovn/southbound/southbound.js'

/** What tells which hypervisors there are. */
export type GatewaySources = {
  southbound: Pick<Southbound, 'gateways'>
  northbound: { client: Pick<Northbound['client'], 'rows'> }
  /** Of this installation. */
  instance: string
}

/**
 * Names of the hypervisors that may carry the gateways of routers. While none is registered, as in a southbound database
 * that is rebuilt, they are those that carry them by the rows: routers keep their gateways.
 */
export function gatewayNames({ southbound, northbound, instance }: GatewaySources): string[] {
  const registered = southbound.gateways()
  if (registered.length > 0) return registered
  const standing = [...northbound.client.rows('Gateway_Chassis').values()]
  const own = standing.filter(({ external_ids }) => external_ids[INSTANCE] === instance)
  return [...new Set(own.map(({ chassis_name }) => chassis_name))].sort()
}
