import { randomBytes } from 'node:crypto'
import type { Database } from '../../../controller/database/connection.js'
import { parseCidr } from '../../../controller/network/addresses.js'
import { PORT_OWNER, ROUTER_PORT_OWNER } from '../../../controller/network/driver.js'
import { insertPort } from '../../../controller/network/local/ports.js'
import { insertSubnet } from '../../../controller/network/local/subnets.js'

const PROJECT = 'project'

export type PortRow = { id: string; networkId: string; macAddress: string; addresses: string[]; allowed: string[] }
export type SubnetRow = { id: string; networkId: string; cidr: string }

type PortOptions = {
  device_id?: string
  device_owner?: string
  ensured_name?: string
  allowed_addresses?: string[]
  /** Security groups that filter it. */
  groups?: string[]
}

/** Rows of the network service, as its API would leave them. Made directly in the tables. */
export function networkRows(database: Database) {
  const inserted = async (table: string, row: object): Promise<string> => {
    const [made] = await database(table).insert(row).returning<{ id: string }[]>('id')
    return made!.id
  }
  const port = async (
    subnets: readonly [SubnetRow, string][],
    { groups, ...columns }: PortOptions = {},
  ): Promise<PortRow> => {
    const networkId = subnets[0]![0].networkId
    const mac_address = `fa:16:3e:${randomBytes(3).toString('hex').match(/../g)!.join(':')}`
    const id = await insertPort(database, {
      ...{ network_id: networkId, project_id: PROJECT, name: '', device_id: '', device_owner: '', ensured_name: null },
      ...{ mac_address, filtered: groups !== undefined, ...columns },
    })
    for (const [subnet, address] of subnets) {
      await database('fixed_ip').insert({ subnet_id: subnet.id, address, port_id: id })
    }
    for (const group of groups ?? []) {
      await database('port_security_group').insert({ port_id: id, security_group_id: group })
    }
    return {
      allowed: columns.allowed_addresses ?? [],
      id: id!,
      networkId,
      macAddress: mac_address,
      addresses: subnets.map(([, address]) => address),
    }
  }
  return {
    database,
    network: (columns: object = {}) => inserted('network', { project_id: PROJECT, mtu: 1450, ...columns }),
    subnet: async (networkId: string, cidr: string, gateway: string | null): Promise<SubnetRow> => {
      const { version, text } = parseCidr(cidr)!
      const place = { network_id: networkId, project_id: PROJECT, name: '' }
      const id = await insertSubnet(database, { ...place, ip_version: version, cidr: text, gateway_ip: gateway }, [])
      return { id, networkId, cidr: text }
    },
    port,
    router: (columns: object = {}) => inserted('router', { project_id: PROJECT, ...columns }),
    /** Ports of VIPs with an address each, from one on. */
    manyPorts: async (subnet: SubnetRow, first: string, count: number): Promise<void> => {
      await database.raw(
        `WITH made AS (
           INSERT INTO port (network_id, project_id, device_id, device_owner, mac_address)
           SELECT ?, ?, '', ?, (lpad(to_hex(number), 12, '0'))::macaddr FROM generate_series(1, ?::integer) number
           RETURNING id, mac_address)
         INSERT INTO fixed_ip (subnet_id, address, port_id)
         SELECT ?, ?::inet + row_number() OVER (), id FROM made`,
        [subnet.networkId, PROJECT, PORT_OWNER.vip, count, subnet.id, first],
      )
    },
    /** Routers with a leg each, from one address on. */
    manyRouters: async (subnet: SubnetRow, first: string, count: number): Promise<void> => {
      await database.raw(
        `WITH router AS (INSERT INTO router (project_id) SELECT ? FROM generate_series(1, ?::integer) RETURNING id),
              numbered AS (SELECT id, gen_random_uuid() AS port_id, row_number() OVER () AS number FROM router),
              made AS (
                INSERT INTO port (id, network_id, project_id, device_id, device_owner, mac_address)
                SELECT port_id, ?, ?, id::text, ?, ('02' || lpad(to_hex(number), 10, '0'))::macaddr FROM numbered),
              leg AS (INSERT INTO router_port (port_id, router_id, gateway) SELECT port_id, id, false FROM numbered)
         INSERT INTO fixed_ip (subnet_id, address, port_id) SELECT ?, ?::inet + number, port_id FROM numbered`,
        [PROJECT, count, subnet.networkId, PROJECT, ROUTER_PORT_OWNER.interface, subnet.id, first],
      )
    },
    /** A router's leg. */
    leg: async (router: string, subnets: readonly [SubnetRow, string][], gateway = false) => {
      const owner = gateway ? 'network:router_gateway' : 'network:router_interface'
      const made = await port(subnets, { device_id: router, device_owner: owner })
      await database('router_port').insert({ port_id: made.id, router_id: router, gateway })
      return made
    },
    removeLeg: async (portId: string) => {
      await database('router_port').where({ port_id: portId }).delete()
      await database('port').where({ id: portId }).delete()
    },
    /** @returns its ID. `associate` leads it somewhere */
    floatingIp: async (subnet: SubnetRow, address: string) => {
      const held = await port([[subnet, address]], { device_owner: 'network:floatingip' })
      const row = { project_id: PROJECT, floating_network_id: subnet.networkId, floating_port_id: held.id }
      return inserted('floating_ip', row)
    },
    associate: async (floatingIp: string, to: { router: string; subnet: SubnetRow; address: string } | null) => {
      const values = {
        router_id: to?.router ?? null,
        fixed_subnet_id: to?.subnet.id ?? null,
        fixed_ip_address: to?.address ?? null,
      }
      await database('floating_ip').where({ id: floatingIp }).update(values)
    },
    group: () => inserted('security_group', { project_id: PROJECT }),
    /** A rule for IPv4 that lets something in. */
    rule: (group: string, columns: object) =>
      inserted('security_group_rule', {
        ...{ project_id: PROJECT, security_group_id: group, direction: 'ingress', ethertype: 'IPv4' },
        ...columns,
      }),
    /** The port of an amphora that may hold a VIP. */
    amphoraPort: (subnet: SubnetRow, address: string, vip: string) =>
      port([[subnet, address]], {
        ...{ device_id: `amphora-${address}`, device_owner: PORT_OWNER.amphora, ensured_name: 'vip' },
        allowed_addresses: [vip],
      }),
  }
}
