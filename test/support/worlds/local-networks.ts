import type { Database } from '../../../controller/database/connection.js'
import { type Cidr, defaultGateway, defaultPools, parseCidr } from '../../../controller/network/addresses.js'
import type { NetworkDriver } from '../../../controller/network/driver.js'
import { createLocalDriver } from '../../../controller/network/local/driver.js'
import { insertPort, placeAddress } from '../../../controller/network/local/ports.js'
import { insertSubnet, subnetFacts } from '../../../controller/network/local/subnets.js'
import { startTestApi, type TestApi } from '../clients/load-balancer-api.js'
import { createTestDatabase } from '../database/database.js'

export type LocalNetworks = {
  database: Database
  /**
   * A project's network with one subnet per CIDR, in order. In an IPv4 /24, only .100 to .199 are allocated
   * automatically.
   */
  network: (project: string, ...cidrs: string[]) => Promise<{ id: string; subnets: string[] }>
  /** A user's port with an address on each of the subnets. */
  port: (project: string, network: string, subnets: readonly string[], deviceId?: string) => Promise<string>
  /** A port's subnets and addresses. */
  addressesOf: (port: string) => Promise<[subnet: string, address: string][]>
}

/** The load-balancing API over the local network driver on a new database, with networks of several projects. */
export async function startApiOnNetworks(
  options: Parameters<typeof startTestApi>[0] = {},
): Promise<{ api: TestApi; networks: LocalNetworks }> {
  const testDatabase = await createTestDatabase()
  const database = testDatabase.of('network')
  const driver = createLocalDriver(database, { reserve: 64, project_share: 25 })
  const api = await startTestApi({ network: driver, ...options })
  return {
    api: {
      ...api,
      stop: async () => {
        await api.stop()
        await testDatabase.drop()
      },
    },
    networks: localNetworks(database, driver),
  }
}

/** Networks of projects, which a test makes in the database. */
export function localNetworks(database: Database, driver: NetworkDriver): LocalNetworks {
  return {
    database,
    network: async (project, ...cidrs) => {
      const [row] = await database('network').insert({ project_id: project }).returning<{ id: string }[]>('id')
      const network = row!.id
      const subnets: string[] = []
      for (const text of cidrs) {
        const cidr = parseCidr(text)!
        const gateway = defaultGateway(cidr)
        const columns = { network_id: network, project_id: project, name: '', gateway_ip: gateway }
        const placed = { ...columns, ip_version: cidr.version, cidr: cidr.text }
        subnets.push(await insertSubnet(database, placed, poolsOf(cidr)))
      }
      return { id: network, subnets }
    },
    port: async (project, network, subnets, deviceId = '') => {
      const columns = { network_id: network, project_id: project, name: '', device_id: deviceId, device_owner: '' }
      const id = await insertPort(database, { ...columns, ensured_name: null })
      if (id === null) throw new Error('The port was not created')
      const facts = await subnetFacts(database, subnets)
      for (const subnet of subnets)
        await placeAddress(database, { id, projectId: project }, facts.get(subnet)!, undefined, null)
      return id
    },
    addressesOf: async port => {
      const found = await driver.port(port)
      return (found?.fixedIps ?? []).map(({ subnetId, address }) => [subnetId, address])
    },
  }
}

/** Leaves addresses for a test to choose, which no port gets by chance. */
function poolsOf(cidr: Cidr) {
  const [network, rest] = cidr.text.split(/(?<=\.)0\/24$/)
  if (rest === undefined) return defaultPools(cidr, defaultGateway(cidr))
  return [{ start: `${network}100`, end: `${network}199` }]
}
