import { randomUUID } from 'node:crypto'
import t from 'tap'
import { placeOf } from '../../../controller/provider/ovn/health/probe-index.js'
import { withMembersAt } from '../../../controller/provider/ovn/health/watch.js'
import { createTestDatabase } from '../../support/database/database.js'
import { insertChildren, insertLoadBalancer } from '../../support/database/load-balancer-rows.js'
import { rowsLookedAt } from '../../support/database/rows-looked-at.js'

t.test('a probe concerns the load balancers in OVN with a member there, found among many', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(() => testDatabase.drop())
  const database = testDatabase.of('load_balancer')
  const balancer = async (provider: string, ...addresses: string[]) => {
    const id = await insertLoadBalancer(database, { provider })
    const { poolId } = await insertChildren(
      ...([database, id, 1] as const),
      addresses.map(address => ({ address })),
    )
    return { id, poolId }
  }
  const one = await balancer('ovn', '10.0.0.5', '10.0.0.6')
  const two = await balancer('ovn', '10.0.0.5')
  await balancer('recording', '10.0.0.5')
  const at = (address: string, port = 80) => placeOf(address, port)
  const crowd = await balancer('ovn')
  await database.raw(
    `WITH more AS (
       INSERT INTO pool (id, load_balancer_id, project_id, protocol, lb_algorithm, generation)
       SELECT gen_random_uuid(), ?, ?, 'TCP', 'SOURCE_IP_PORT', 1 FROM generate_series(1, 1000)
       RETURNING id, load_balancer_id, project_id, generation)
     INSERT INTO member (id, pool_id, load_balancer_id, project_id, server_number, address, protocol_port, generation)
     SELECT gen_random_uuid(), id, load_balancer_id, project_id, number, '10.0.0.' || number,
            1000 + row_number() OVER (), generation FROM more, generate_series(1, 5) number`,
    [crowd.id, 'a'.repeat(32)],
  )
  await database.raw('ANALYZE')
  const looked = await database.transaction(trx =>
    rowsLookedAt(trx, ['member'], async () => {
      const found = async (...places: string[]) => (await withMembersAt(trx, places)).sort()
      t.same(await found(at('10.0.0.5'), at('10.0.0.5')), [one.id, two.id].sort())
      t.same(await found(at('10.0.0.6')), [one.id])
      t.same(await found(at('10.0.0.6', 81)), [])
      t.same(await found(at(randomUUID())), [])
    }),
  )
  t.ok(looked < 100, `${looked} rows of 5000`)
})
