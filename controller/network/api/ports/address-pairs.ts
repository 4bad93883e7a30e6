import type { Knex } from 'knex'
import * as z from 'zod'
import { execute, maybeOne, one } from '../../../database/query.js'
import { json, sql } from '../../../database/sql.js'
import type { Caller } from '../../../identity/caller.js'
import { parseAddress, parseCidr } from '../../addresses.js'
import { isAdmin } from '../../visibility.js'
import { attribute } from '../body.js'
import { invalidInput, NeutronError } from '../neutron-error.js'

/** An address, or all of a prefix, that a port may send from besides its own. */
export type AddressPair = { ip_address: string; mac_address: string }

type RequestedPair = { ip_address: string; mac_address?: string | undefined }

const MAX_PAIRS = 10

const addressOrPrefix = z
  .string({ error: issue => `'${issue.input}' is not a valid IP address` })
  .transform((text, context) => {
    const address = parseAddress(text)
    const cidr = parseCidr(address === null ? text : `${text}/${address.version === 4 ? 32 : 128}`)
    if (cidr !== null) return address === null ? cidr.text : cidr.text.slice(0, cidr.text.indexOf('/'))
    context.addIssue({ code: 'custom', message: `'${text}' is not a valid IP address or prefix` })
    return z.NEVER
  })

/** The attribute allowed_address_pairs. */
export const addressPairs = z
  .array(z.strictObject({ ip_address: addressOrPrefix, mac_address: attribute.macAddress.optional() }))
  .max(MAX_PAIRS, { error: `the maximum is ${MAX_PAIRS} address pairs` })

/**
 * Replaces the pairs of a port. A pair without a MAC address gets the port's.
 * @throws NeutronError 400 for one pair twice, or for an address or MAC address that somebody else has
 */
export async function setAddressPairs(
  trx: Knex,
  caller: Caller,
  portId: string,
  requested: readonly RequestedPair[],
): Promise<void> {
  const port = await one(
    trx,
    sql<PortFacts>`SELECT network_id, project_id, mac_address::text AS mac_address FROM port WHERE id = ${portId}`,
  )
  const pairs = requested.map(({ ip_address, mac_address = port.mac_address }) => ({ ip_address, mac_address }))
  const repeated = pairs.find((pair, index) => pairs.slice(0, index).some(other => isSame(pair, other)))
  if (repeated !== undefined) {
    throw new NeutronError(
      400,
      'DuplicateAddressPairInRequest',
      `Request contains duplicate address pair: mac_address ${repeated.mac_address} ip_address ${repeated.ip_address}.`,
    )
  }
  if (!isAdmin(caller)) for (const pair of pairs) await refuseForeign(trx, port, pair)
  await execute(trx, sql`UPDATE port SET allowed_address_pairs = ${json(pairs)} WHERE id = ${portId}`)
}

type PortFacts = { network_id: string; project_id: string; mac_address: string }

const isSame = (a: AddressPair, b: AddressPair) => a.ip_address === b.ip_address && a.mac_address === b.mac_address

/** Why a tenant may not claim a pair: the first that applies. */
async function refuseForeign(trx: Knex, port: PortFacts, { ip_address, mac_address }: AddressPair): Promise<void> {
  const refusal = await maybeOne(
    trx,
    sql<{ reason: string }>`
      SELECT 'the address of a gateway that others use' AS reason FROM subnet JOIN network ON network.id = subnet.network_id
       WHERE network.id = ${port.network_id} AND network.shared AND gateway_ip <<= ${ip_address}::inet
      UNION ALL
      SELECT 'addresses of a LAN outside the allocation pools' FROM network
       WHERE id = ${port.network_id} AND network_type <> 'local'
         AND NOT EXISTS (SELECT FROM allocation_pool JOIN subnet ON subnet.id = allocation_pool.subnet_id
                          WHERE subnet.network_id = network.id AND host(network(${ip_address}::inet))::inet >= first
                            AND host(broadcast(${ip_address}::inet))::inet <= last)
      UNION ALL
      SELECT 'a MAC address of the LAN' FROM network
       WHERE id = ${port.network_id} AND network_type <> 'local' AND ${mac_address}::macaddr <> ${port.mac_address}::macaddr
      UNION ALL
      SELECT 'addresses of the management network' FROM subnet JOIN network ON network.id = subnet.network_id
       WHERE network.built_in = 'management' AND subnet.cidr && ${ip_address}::inet
      UNION ALL
      SELECT 'the address of another project’s port' FROM fixed_ip JOIN port ON port.id = fixed_ip.port_id
       WHERE port.network_id = ${port.network_id} AND port.project_id <> ${port.project_id}
         AND fixed_ip.address <<= ${ip_address}::inet
      UNION ALL
      SELECT 'the MAC address of another project’s port' FROM port
       WHERE network_id = ${port.network_id} AND project_id <> ${port.project_id}
         AND mac_address = ${mac_address}::macaddr
      LIMIT 1`,
  )
  if (refusal === undefined) return
  throw invalidInput(`allowed_address_pairs: ${ip_address} with ${mac_address} includes ${refusal.reason}`)
}
