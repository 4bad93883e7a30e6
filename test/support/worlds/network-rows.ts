import { randomBytes } from 'node:crypto'
import type { Database } from '../../../controller/database/connection.js'
import { parseCidr } from '../../../controller/network/addresses.js'
import { PORT_OWNER } from '../../../controller/network/driver.js'
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
