import t from 'tap'
import { connect } from '../../../controller/database/connection.js'
import { answersWithin, execute, many, maybeOne, one } from '../../../controller/database/query.js'
import {
  assignments,
  identifier,
  insertion,
  json,
  prepared,
  sql,
  unprepared,
} from '../../../controller/database/sql.js'
import { createTestDatabase } from '../../support/database/database.js'
import { startDatabaseProxy } from '../../support/faults/database-proxy.js'

const database = await createTestDatabase()
t.teardown(database.drop)
const db = database.of('load_balancer')

t.test('each verb returns rows, one row or a count, on the pool and in a transaction', async t => {
  const sum = sql<{
    sum: number
    text: string | null
  }>`SELECT ${1}::integer + ${2}::integer AS sum, ${null}::text AS text`
  t.same(await many(db, sum), [{ sum: 3, text: null }])
  t.same(await one(db, sum), { sum: 3, text: null })
  await db.transaction(async trx => {
    await execute(trx, sql`CREATE TEMPORARY TABLE noted (id integer, document jsonb) ON COMMIT DROP`)
    const rows = [
      { id: 1, document: json({ a: ['b'] }) },
      { id: 2, document: null },
    ]
    t.equal(await execute(trx, sql`INSERT INTO ${identifier('noted')} ${insertion(rows)}`), 2)
    const withKey = sql<{ id: number }>`SELECT id FROM noted WHERE document ? ${'a'}`
    t.same(await many(trx, withKey), [{ id: 1 }], 'a question mark is an operator')
    t.equal(await maybeOne(trx, sql`SELECT id FROM noted WHERE id = ANY(${[3, 4]})`), undefined)
    await t.rejects(one(trx, sql`SELECT id FROM noted`), { message: /^2 rows instead of one: SELECT id FROM noted/ })
  })
})

t.test('an undefined value is refused before anything is written', async t => {
  const values: unknown[] = [undefined]
  const undefinedText = values[0] as string
  await t.rejects(execute(db, sql`SELECT ${undefinedText}::text`), TypeError)
})

t.test('a statement is prepared once per connection, unless its text varies', async t => {
  await db.transaction(async trx => {
    const once = (id: number) => many(trx, sql`SELECT ${id}::integer AS prepared_by_this_test`)
    await once(1)
    await once(2)
    await many(trx, unprepared(sql`SELECT ${3}::integer AS varying_by_this_test`))
    const prepared = await many(
      trx,
      sql<{ statement: string }>`SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%_by_this_test'`,
    )
    t.same(prepared, [{ statement: 'SELECT $1::integer AS prepared_by_this_test' }])
  })
})

t.test('SET and VALUES whose columns follow a request are not prepared', async t => {
  await db.transaction(async trx => {
    await execute(trx, sql`CREATE TEMPORARY TABLE stamped (id integer, name text) ON COMMIT DROP`)
    await execute(
      trx,
      sql`INSERT INTO stamped ${insertion([
        { id: 1, name: 'a' },
        { id: 2, name: 'b' },
      ])}`,
    )
    await execute(trx, sql`UPDATE stamped SET ${assignments({ name: 'c' })} WHERE id = ${1}`)
    await execute(trx, sql`INSERT INTO stamped ${prepared(insertion([{ id: 3 }]))}`)
    const kept = await many(
      trx,
      sql<{
        statement: string
      }>`SELECT statement FROM pg_prepared_statements WHERE statement ~ '^(INSERT INTO|UPDATE) stamped'`,
    )
    t.same(kept, [{ statement: 'INSERT INTO stamped ("id") VALUES ($1)' }])
  })
})

t.test('a pool whose connections are all busy does not count as an unavailable database', async t => {
  const busy = Array.from({ length: 8 }, () => execute(db, sql`SELECT pg_sleep(0.5)`))
  t.equal(await answersWithin(db, 200), true)
  await Promise.all(busy)
  const proxy = await startDatabaseProxy(database.urlOf('load_balancer'))
  const apart = connect({ url: proxy.url, applicationName: 'test' })
  t.teardown(async () => {
    await apart.destroy()
    await proxy.stop()
  })
  t.equal(await answersWithin(apart, 2_000), true)
  await proxy.disconnect()
  t.equal(await answersWithin(apart, 2_000), false)
})
