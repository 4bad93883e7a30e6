import type { Database } from '../../database/connection.js'
import type { Logger } from '../../log/log.js'
import type { Northbound } from '../../ovn/northbound/northbound.js'
import type { Southbound } from '../../ovn/southbound/southbound.js'
import type { Fabric } from '../local/fabric.js'
import { failuresOf, startRounds } from '../rounds.js'
import type { OvnPlace } from './desired-topology.js'
import { createEndsKeeper } from './keep-ends.js'
import { createPhysicalKeeper, type PhysicalOptions } from './keep-physical.js'
import { createTopologyKeeper } from './topology-keeper.js'

const READY_MS = 5_000

export type OvnNetworkWorkerOptions = {
  /** Connected with the network service's role. */
  database: Database
  /** For the listening connection. */
  databaseUrl: string
  northbound: Northbound
  place: OvnPlace
  fabric: Fabric
  southbound: Southbound
  /** How networks of our own OVN lead to physical networks; null: whoever keeps OVN maps them. */
  physical: Omit<PhysicalOptions, 'log'> | null
  /** Keeps the host's own interfaces on the built-in networks, and the rules around them. */
  keepHost: () => Promise<void>
  log: Logger
}

/**
 * Carries out in OVN what the tables of the network service say, until stopped. A round follows every change of the
 * tables, of the rows by others, and every sweep.
 */
export async function startOvnNetworkWorker(options: OvnNetworkWorkerOptions): Promise<{ stop: () => Promise<void> }> {
  const { database, databaseUrl, northbound, place, fabric, southbound, physical, keepHost, log } = options
  let wake = (): void => undefined
  const keeper = createTopologyKeeper(northbound, place, { log, onChange: () => wake() })
  const ends = createEndsKeeper(fabric, log)
  const uplinks = physical === null ? null : createPhysicalKeeper(fabric, { ...physical, log })
  // Gateways of routers are on the hypervisors that there are.
  const endChassis = southbound.client.onChange(changes => {
    if (changes.some(({ table }) => table === 'Chassis')) wake()
  })
  const rounds = await startRounds({
    databaseUrl,
    // The host's interfaces are connected once their ports are there.
    round: async () =>
      failuresOf([
        // Without the hypervisors, routers would lose their gateways.
        ...(await Promise.allSettled([southbound.client.ready(READY_MS).then(() => keeper.keep(database))])),
        ...(await Promise.allSettled([keepHost(), ends.keep(database), uplinks?.keep(database)])),
      ]),
    log,
  })
  wake = rounds.wake
  return {
    stop: async () => {
      endChassis()
      keeper.stop()
      await rounds.stop()
    },
  }
}
