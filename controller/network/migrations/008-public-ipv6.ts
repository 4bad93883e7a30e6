import type { Migration } from '../../database/migrate.js'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { defaultGateway, defaultPools, formatAddress, parseCidr, poolSpan, uniqueLocalSubnet } from '../addresses.js'

/**
 * Gives the public network of an existing installation the IPv6 subnet that a new one begins with. It takes no address
 * from what is there, and whoever deletes it gets no other.
 */
export const publicIpv6: Migration = {
  name: '008-public-ipv6',
  up: async trx => {
    type Row = { id: string; project_id: string; cidr: string }
    const [network] = await many(
      trx,
      sql<Row>`
        SELECT network.id, network.project_id, subnet.cidr::text AS cidr
          FROM network JOIN subnet ON subnet.network_id = network.id
         WHERE network.built_in = 'public' AND subnet.ip_version = 4
           AND NOT EXISTS (SELECT FROM subnet WHERE subnet.network_id = network.id AND subnet.ip_version = 6)
         ORDER BY subnet.created_at, subnet.id LIMIT 1`,
    )
    const range = network === undefined ? null : parseCidr(network.cidr)
    if (network === undefined || range === null) return
    // The /16 from which the first start carved the networks.
    const whole = parseCidr(`${formatAddress(4, range.first)}/16`)?.text ?? network.cidr
    const cidr = parseCidr(uniqueLocalSubnet(whole, 1))!
    const gateway = defaultGateway(cidr)
    await trx.raw(
      `INSERT INTO subnet (network_id, project_id, name, ip_version, cidr, gateway_ip)
       VALUES (?, ?, 'public-ipv6-subnet', 6, ?, ?)`,
      [network.id, network.project_id, cidr.text, gateway],
    )
    for (const pool of defaultPools(cidr, gateway)) {
      await trx.raw(
        `INSERT INTO allocation_pool (subnet_id, first, last, span)
         SELECT id, ?, ?, ? FROM subnet WHERE network_id = ? AND ip_version = 6`,
        [pool.start, pool.end, poolSpan(pool), network.id],
      )
    }
  },
}
