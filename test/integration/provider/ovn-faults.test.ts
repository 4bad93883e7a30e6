import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { INSTANCE as INSTANCE_KEY, OWNER } from '../../../controller/ovn/northbound/desired.js'
import { Northbound } from '../../../controller/ovn/northbound/northbound.js'
import { rowUuid } from '../../../controller/ovn/northbound/row-uuid.js'
import { watchRows } from '../../../controller/provider/ovn/due.js'
import { createTestDatabase } from '../../support/database/database.js'
import { insertLoadBalancer } from '../../support/database/load-balancer-rows.js'
import { eventually } from '../../support/eventually.js'
import { standaloneServer } from '../../support/services/ovsdb.js'
import { quiet } from '../../support/worlds/machines.js'

const INSTANCE = 'abcdef'

t.test('a load balancer that waits for OVN is tried again once OVN serves, and once its network is there', async t => {
  const testDatabase = await createTestDatabase()
  const directory = mkdtempSync(join(tmpdir(), 'ovs-'))
  const server = await standaloneServer(directory, '/usr/share/ovn/ovn-nb.ovsschema')
  const northbound = new Northbound({ addresses: [server.address], instance: INSTANCE, log: quiet })
  const [database, networkDatabase] = [testDatabase.of('load_balancer'), testDatabase.of('network')]
  const rows = await watchRows({
    ...{ database, networkDatabase, networkUrl: testDatabase.urlOf('network'), northbound, log: quiet },
  })
  t.teardown(async () => {
    await rows.stop()
    await northbound.stop()
    await server.end()
    rmSync(directory, { recursive: true })
    await testDatabase.drop()
  })
  const faulted = async (code: string): Promise<string> => {
    const id = await insertLoadBalancer(database, { provider: 'ovn' })
    await database('load_balancer')
      .where({ id })
      .update({ fault: { code, text: '' }, retry_at: database.raw(`now() + interval '300 seconds'`) })
    return id
  }
  const isDue = async (id: string): Promise<boolean> => {
    const [row] = await database('load_balancer')
      .where({ id })
      .select(database.raw('retry_at <= now() AND recheck_at <= now() AS due'))
    return row.due === true
  }
  const unreachable = await faulted('ovn-unreachable')
  await server.start()
  await eventually('OVN serves', () => isDue(unreachable))
  const refused = await faulted('ovn-refused')
  const notReady = await faulted('network-not-ready')
  await northbound.client.ready(10_000)
  const marks = { [INSTANCE_KEY]: INSTANCE, [OWNER]: 'network/one' }
  await northbound.client.transact([
    {
      ...{ op: 'insert', table: 'Logical_Switch', uuid: rowUuid(INSTANCE, 'one') },
      row: { name: 'one', external_ids: marks },
    },
  ])
  await eventually('the network is there', () => isDue(notReady))
  t.equal(await isDue(refused), false, 'what OVN refuses has its pauses')
})
