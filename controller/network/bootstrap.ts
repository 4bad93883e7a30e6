import type { Knex } from 'knex'
import type { Database } from '../database/connection.js'
import { execute, many, maybeOne, one } from '../database/query.js'
import { insertion, sql } from '../database/sql.js'
import { inTransaction } from '../database/transaction.js'
import { defaultGateway, defaultPools, formatAddress, parseCidr, uniqueLocalSubnet } from './addresses.js'
import { insertSubnet } from './local/subnets.js'

export type BuiltInSubnet = { id: string; cidr: string; gatewayIp: string | null }
export type BuiltInNetwork = { id: string; mtu: number; subnets: BuiltInSubnet[] }

export type BuiltInNetworks = {
  /** Connects controllers and amphorae. The gateway of its subnet is the controllers' address. */
  management: BuiltInNetwork
  /** Shared and external: an IPv4 subnet, then an IPv6 subnet. Their gateways are the host leg. */
  public: BuiltInNetwork
  /** For tenants: an IPv4 subnet, then an IPv6 subnet. No device holds their gateway addresses. */
  private: BuiltInNetwork
}

export type BootstrapOptions = {
  /** IPv4 /16 to carve the subnets from at the first start. Later starts use the existing networks. */
  cidr: string
  serviceProjectId: string
  /** Owner of the private network. Without one, all projects share it. */
  demoProjectId?: string
}

type Plan = {
  builtIn: keyof BuiltInNetworks
  projectId: string
  shared: boolean
  external: boolean
  description: string
  subnets: { name: string; cidr: string }[]
}

/** Creates missing built-in networks. Idempotent; may run concurrently. @throws Error unless `cidr` is an IPv4 /16 */
export async function bootstrapNetworks(database: Database, options: BootstrapOptions): Promise<BuiltInNetworks> {
  const plans = planNetworks(options)
  return inTransaction(database, async trx => {
    await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtext('krater first networks'))`)
    const networks: Partial<BuiltInNetworks> = {}
    for (const plan of plans) networks[plan.builtIn] = await ensureNetwork(trx, plan)
    return networks as BuiltInNetworks
  })
}

/** The built-in networks, or null until all of them exist. */
export async function findBuiltInNetworks(database: Knex): Promise<BuiltInNetworks | null> {
  const [management, publicNetwork, privateNetwork] = await Promise.all(
    (['management', 'public', 'private'] as const).map(name => builtInNetwork(database, name)),
  )
  if (!management || !publicNetwork || !privateNetwork) return null
  return { management, public: publicNetwork, private: privateNetwork }
}

function planNetworks({ cidr, serviceProjectId, demoProjectId }: BootstrapOptions): Plan[] {
  const whole = parseCidr(cidr)
  if (whole === null || whole.version !== 4 || whole.prefix !== 16) {
    throw new Error(`network.cidr must be an IPv4 /16 such as 10.77.0.0/16, not ${cidr}`)
  }
  const block = (index: bigint) => `${formatAddress(4, whole.first + index * 4096n)}/20`
  return [
    {
      builtIn: 'management',
      projectId: serviceProjectId,
      shared: false,
      external: false,
      description: 'Between controllers and amphorae',
      subnets: [{ name: 'management-subnet', cidr: block(0n) }],
    },
    {
      builtIn: 'public',
      projectId: serviceProjectId,
      shared: true,
      external: true,
      description: 'Reachable from this machine',
      subnets: [
        { name: 'public-subnet', cidr: block(1n) },
        { name: 'public-ipv6-subnet', cidr: uniqueLocalSubnet(whole.text, 1) },
      ],
    },
    {
      builtIn: 'private',
      projectId: demoProjectId ?? serviceProjectId,
      shared: demoProjectId === undefined,
      external: false,
      description: '',
      subnets: [
        { name: 'private-subnet', cidr: block(2n) },
        { name: 'private-ipv6-subnet', cidr: uniqueLocalSubnet(whole.text, 0) },
      ],
    },
  ]
}

async function ensureNetwork(trx: Knex, plan: Plan): Promise<BuiltInNetwork> {
  const existing = await builtInNetwork(trx, plan.builtIn)
  if (existing !== null) return existing
  const row = {
    built_in: plan.builtIn,
    name: plan.builtIn,
    project_id: plan.projectId,
    shared: plan.shared,
    external: plan.external,
    description: plan.description,
  }
  const network = await one(trx, sql<{ id: string }>`INSERT INTO network ${insertion([row])} RETURNING id`)
  for (const { name, cidr: text } of plan.subnets) {
    const cidr = parseCidr(text)!
    const gateway = defaultGateway(cidr)
    const columns = {
      network_id: network.id,
      project_id: plan.projectId,
      name,
      ip_version: cidr.version,
      cidr: cidr.text,
      gateway_ip: gateway,
    }
    await insertSubnet(trx, columns, defaultPools(cidr, gateway))
  }
  return (await builtInNetwork(trx, plan.builtIn))!
}

async function builtInNetwork(trx: Knex, builtIn: string): Promise<BuiltInNetwork | null> {
  const network = await maybeOne(
    trx,
    sql<{ id: string; mtu: number }>`SELECT id, mtu FROM network WHERE built_in = ${builtIn}`,
  )
  if (network === undefined) return null
  const subnets = await many(
    trx,
    sql<BuiltInSubnet>`
      SELECT id, cidr::text AS cidr, host(gateway_ip) AS "gatewayIp" FROM subnet WHERE network_id = ${network.id}
       ORDER BY ip_version, created_at, id`,
  )
  return { id: network.id, mtu: network.mtu, subnets }
}
