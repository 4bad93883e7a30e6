import { randomUUID } from 'node:crypto'
import t from 'tap'
import { execute } from '../../../controller/database/query.js'
import { sql } from '../../../controller/database/sql.js'
import { retryOnFreedHosts } from '../../../controller/housekeeping/freed-hosts.js'
import { createTestDatabase } from '../../support/database/database.js'
import { findLoadBalancer, insertLoadBalancer } from '../../support/database/load-balancer-rows.js'

t.test('a load balancer that waits for a machine tries again when an enrolled host is free', async t => {
  const testDatabase = await createTestDatabase()
  t.teardown(testDatabase.drop)
  const db = testDatabase.of('load_balancer')
  const minutes = (count: number) => new Date(Date.now() + count * 60_000)
  const failed = (code: string, waited: number) =>
    insertLoadBalancer(db, {
      fault: JSON.stringify({ code, text: '' }),
      ...{ fault_since: minutes(-waited), retry_at: minutes(4), attempts: 9 },
    })
  const [shortest, longest, longer] = [
    await failed('no-free-host', 1),
    await failed('no-free-host', 3),
    await failed('no-free-host', 2),
  ]
  const other = await failed('compute-unavailable', 9)
  const due = async () => {
    const found = await Promise.all(
      Object.entries({ shortest, longest, longer, other }).map(async ([name, id]) => {
        const row = await findLoadBalancer(db, id)
        return new Date(String(row?.retry_at)) <= new Date() ? [name] : []
      }),
    )
    return found.flat()
  }
  t.equal(await retryOnFreedHosts(db), 0, 'no host')

  await execute(
    db,
    sql`INSERT INTO enrolled_host
          (id, name, login, address, port, host_key, zone, physical_host, controller_address, interfaces, state)
        VALUES (${randomUUID()}::uuid, 'h', 'root', '192.0.2.1', 22, '', 'local', 'h', '192.0.2.9', '[]', 'wiping')`,
  )
  t.equal(await retryOnFreedHosts(db), 0, 'a host that is still to be wiped')
  await execute(db, sql`UPDATE enrolled_host SET state = 'free', state_at = now()`)
  t.equal(await retryOnFreedHosts(db), 0, 'a free host that nobody has heard yet')
  await execute(db, sql`UPDATE enrolled_host SET last_seen = now()`)
  t.equal(await retryOnFreedHosts(db), 2, 'no more than a pair')
  t.strictSame(await due(), ['longest', 'longer'], 'those that have waited longest')

  // The two have tried, in vain: their next try comes after their back-off, and the third has its turn.
  await execute(
    db,
    sql`UPDATE load_balancer SET retry_at = now() + interval '300 seconds' WHERE id = ANY(${[longest, longer]}::uuid[])`,
  )
  await execute(db, sql`UPDATE enrolled_host SET state_at = now() - interval '6 seconds'`)
  t.equal(await retryOnFreedHosts(db), 1)
  t.strictSame(await due(), ['shortest'])

  await execute(db, sql`UPDATE load_balancer SET retry_at = now() + interval '200 seconds'`)
  await execute(db, sql`UPDATE enrolled_host SET state_at = now() - interval '1 minute'`)
  t.equal(await retryOnFreedHosts(db), 0, 'a host that has been free for long is no news')
})
