import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { loadConfiguration } from '../../../controller/config/load.js'
import { connect, type Database } from '../../../controller/database/connection.js'
import { Fabric } from '../../../controller/network/local/fabric.js'
import type { Krater } from '../worlds/krater.js'

const run = promisify(execFile)

export type Databases = { loadBalancer: Database; network: Database }

/** Connections to the tables of a running instance, with its services' roles. */
export function openDatabases(t: Test, krater: Krater): Databases {
  const { database } = loadConfiguration(krater.directory, krater.environment)
  const open = (url: string | undefined) => {
    const opened = connect({ url: url!, applicationName: 'crash test' })
    t.teardown(() => opened.destroy())
    return opened
  }
  return { loadBalancer: open(database.load_balancer), network: open(database.network) }
}

type Expected = {
  id: string
  vip_port_id: string
  vip_subnet_id: string
  vip_network_id: string
  amphorae: string[]
  member_networks: string[]
}

/**
 * What exists in the kernel, on disk and in the tables, and what the load balancers explain, each a list of
 * words. The test's own ports (those that no service of ours made) are omitted. The lists are equal when
 * nothing leaked and nothing is missing.
 */
export async function takeInventory(
  krater: Krater,
  databases: Databases,
): Promise<{ is: string[]; shouldBe: string[] }> {
  const { loadBalancer, network } = databases
  const instance = krater.instance()
  const desired = await explain(databases)
  const warm = await loadBalancer('amphora').whereNull('load_balancer_id').pluck<string[]>('id')
  const amphorae = [...desired.flatMap(lb => lb.amphorae), ...warm]

  const shouldBe = [
    ...amphorae.flatMap(id => [
      `row of amphora ${id}`,
      `directory of amphora ${id}`,
      `namespace krater-${instance}-${id}`,
      `port ${id} Octavia:management octavia-lb-mgmt-${id}`,
    ]),
    `namespace krater-${instance}`,
    ...desired.flatMap(({ id, vip_network_id, member_networks, amphorae }) => [
      `one amphora of ${id}: ${amphorae.length === 1}`,
      `port lb-${id} Octavia octavia-lb-${id}`,
      ...amphorae.flatMap(amphora => [
        `port ${amphora} Octavia:amphora octavia-lb-vrrp-${amphora}`,
        ...member_networks
          .filter(other => other !== vip_network_id)
          .map(other => `port ${amphora} Octavia:amphora octavia-lb-member-${amphora}-${other}`),
      ]),
    ]),
  ]

  const ports = await network('port').select<
    { id: string; device_id: string; device_owner: string; name: string; ensured_name: string | null }[]
  >('id', 'device_id', 'device_owner', 'name', 'ensured_name')
  const ours = ports.filter(port => port.ensured_name !== null)
  const interfaces = await new Fabric({ instance }).attachedPorts()
  // Each port has an interface, except a VIP's, which the amphora carries on its base port; the users' ports
  // have interfaces of the test.
  const withInterface = ports.filter(port => port.device_owner !== 'Octavia').map(port => port.id)
  const health = await loadBalancer('amphora_health').pluck<string[]>('amphora_id')
  const allRows = await loadBalancer('amphora').pluck<string[]>('id')
  const is = [
    ...allRows.map(id => `row of amphora ${id}`),
    ...readdirSync(join(krater.directory, 'amphorae')).map(id => `directory of amphora ${id}`),
    ...(await namespacesOf(instance)).map(name => `namespace ${name}`),
    ...ours.map(({ device_id, device_owner, name }) => `port ${device_id} ${device_owner} ${name}`),
    ...desired.map(({ id, amphorae }) => `one amphora of ${id}: ${amphorae.length === 1}`),
    ...interfaces.filter(id => !withInterface.includes(id)).map(id => `interface of no port ${id}`),
    ...withInterface.filter(id => !interfaces.includes(id)).map(id => `port without an interface ${id}`),
    ...health.filter(id => !allRows.includes(id)).map(id => `health of no amphora ${id}`),
    ...(await leftRows(loadBalancer)),
  ]
  return { is: is.sort(), shouldBe: shouldBe.sort().map(word => word.replace(': false', ': true')) }
}

async function explain({ loadBalancer, network }: Databases): Promise<Expected[]> {
  const { rows } = await loadBalancer.raw(`
    SELECT lb.id, lb.vip_port_id, lb.vip_subnet_id, lb.vip_network_id,
           ARRAY(SELECT a.id::text FROM amphora a WHERE a.load_balancer_id = lb.id) AS amphorae,
           ARRAY(SELECT DISTINCT m.subnet_id::text FROM member m WHERE m.load_balancer_id = lb.id) AS subnets
      FROM load_balancer lb`)
  const networkOf = new Map(
    (await network('subnet').select<{ id: string; network_id: string }[]>('id', 'network_id')).map(subnet => [
      subnet.id,
      subnet.network_id,
    ]),
  )
  return (rows as (Expected & { subnets: string[] })[]).map(row => ({
    ...row,
    member_networks: [...new Set(row.subnets.map(id => networkOf.get(id) ?? id))],
  }))
}

/** Rows that a completed change must not leave. */
async function leftRows(database: Database): Promise<string[]> {
  const { rows } = await database.raw(`
    SELECT 'deleted row of ' || kind || ' ' || id AS word FROM (
      SELECT 'listener' AS kind, id FROM listener WHERE change = 'delete'
      UNION ALL SELECT 'pool', id FROM pool WHERE change = 'delete'
      UNION ALL SELECT 'member', id FROM member WHERE change = 'delete'
      UNION ALL SELECT 'health monitor', id FROM health_monitor WHERE change = 'delete') gone
    UNION ALL SELECT 'claim of ' || id FROM load_balancer WHERE lease_owner IS NOT NULL
    UNION ALL SELECT 'fault of ' || id FROM load_balancer WHERE fault IS NOT NULL`)
  return (rows as { word: string }[]).map(({ word }) => word)
}

async function namespacesOf(instance: string): Promise<string[]> {
  const { stdout } = await run('ip', ['netns', 'list'], { timeout: 10_000 })
  return stdout
    .split('\n')
    .map(line => line.split(' ')[0] ?? '')
    .filter(name => name.startsWith('krater-') && name.includes(instance))
}
