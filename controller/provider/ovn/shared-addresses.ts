import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import { execute, many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { type NetworkDriver, PORT_OWNER, type Port, type PortRequest } from '../../network/driver.js'

/** The address of a network's balancer router, or that from which members on a subnet are probed. */
export type SharedAddress = { kind: 'balancer' | 'probe'; placeId: string }

/** Load balancers share addresses in OVN. One that nobody uses any more is released. */
export type SharedAddresses = {
  /** @returns the port of an address, which stays as long as the load balancer uses it */
  use: (loadBalancerId: string, address: SharedAddress, request: PlacedRequest) => Promise<Port>
  /** Ends the use of all addresses but these. */
  useOnly: (loadBalancerId: string, addresses: readonly SharedAddress[]) => Promise<void>
}

export type PlacedRequest = Pick<PortRequest, 'networkId' | 'fixedIps'>

/** @param database with the role of the load balancer service, whose uses tell when an address is released */
export function createSharedAddresses(database: Database, network: NetworkDriver): SharedAddresses {
  return {
    use: (loadBalancerId, { kind, placeId }, request) =>
      inTransaction(database, async trx => {
        await lock(trx, { kind, placeId })
        await execute(
          trx,
          sql`INSERT INTO ovn_address_use (load_balancer_id, kind, place_id) VALUES (${loadBalancerId}, ${kind}, ${placeId})
              ON CONFLICT DO NOTHING`,
        )
        // It is the network's, whoever needs it first.
        const projectId = (await network.network(request.networkId))?.projectId ?? ''
        return network.ensurePort({ ...request, ...identityOf({ kind, placeId }), projectId })
      }),
    useOnly: async (loadBalancerId, addresses) => {
      const used = await many(
        database,
        sql<SharedAddress>`
          SELECT kind, place_id::text AS "placeId" FROM ovn_address_use WHERE load_balancer_id = ${loadBalancerId}`,
      )
      const isKept = (one: SharedAddress) =>
        addresses.some(({ kind, placeId }) => kind === one.kind && placeId === one.placeId)
      for (const address of used.filter(one => !isKept(one))) await release(database, network, loadBalancerId, address)
    },
  }
}

/** Finds addresses that are there, and makes none. */
export const findSharedAddresses = (network: NetworkDriver): Pick<SharedAddresses, 'use'> => ({
  use: async (_loadBalancerId, address) => {
    const { deviceId } = identityOf(address)
    const [port] = await network.portsOf(deviceId)
    if (port === undefined) throw new AddressMissing(`There is no port ${deviceId} yet.`)
    return port
  },
})

/** The load balancer has not come to be. */
export class AddressMissing extends Error {
  override readonly name = 'AddressMissing'
}

async function release(
  database: Database,
  network: NetworkDriver,
  loadBalancerId: string,
  address: SharedAddress,
): Promise<void> {
  const { kind, placeId } = address
  await inTransaction(database, async trx => {
    await lock(trx, address)
    const others = await many(
      trx,
      sql`SELECT FROM ovn_address_use
           WHERE kind = ${kind} AND place_id = ${placeId} AND load_balancer_id <> ${loadBalancerId} LIMIT 1`,
    )
    // First the port: whoever comes after a crash finds the use, and releases again.
    if (others.length === 0)
      for (const port of await network.portsOf(identityOf(address).deviceId)) await network.deletePort(port.id)
    await execute(
      trx,
      sql`DELETE FROM ovn_address_use
           WHERE kind = ${kind} AND place_id = ${placeId} AND load_balancer_id = ${loadBalancerId}`,
    )
  })
}

/** Until the end of the transaction, nobody else begins or ends a use of this address. */
const lock = (trx: Knex, { kind, placeId }: SharedAddress) =>
  execute(trx, sql`SELECT pg_advisory_xact_lock(hashtextextended(${`krater ovn ${kind} ${placeId}`}, 0))`)

const identityOf = ({ kind, placeId }: SharedAddress): Pick<PortRequest, 'deviceId' | 'deviceOwner' | 'name'> =>
  kind === 'balancer'
    ? { deviceId: `ovn-balancer-${placeId}`, deviceOwner: PORT_OWNER.balancer, name: `ovn-balancer-${placeId}` }
    : { deviceId: `ovn-lb-hm-${placeId}`, deviceOwner: PORT_OWNER.probe, name: `ovn-lb-hm-${placeId}` }
