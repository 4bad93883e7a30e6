import t from 'tap'
import { isDatabaseAway } from '../../../controller/database/database-away.js'

t.test('connection errors are distinguished from errors of the statement', async t => {
  const away = [
    new Error('Connection terminated unexpectedly'),
    new Error('update "load_balancer" set "name" = $1 - Connection terminated unexpectedly'),
    new Error('select 1 - Client has encountered a connection error and is not queryable'),
    new Error('Connection terminated due to connection timeout'),
    new Error('Knex: Timeout acquiring a connection. The pool is probably full.'),
    Object.assign(new Error('terminating connection'), { code: '57P01' }),
    Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }),
  ]
  for (const error of away) t.equal(isDatabaseAway(error), true, error.message)
  const faults = [
    new Error(`insert into "pool" values ('x - Connection terminated unexpectedly') - null value in column "id"`),
    Object.assign(new Error('duplicate key'), { code: '23505' }),
    'Connection terminated unexpectedly',
  ]
  for (const fault of faults) t.equal(isDatabaseAway(fault), false, String(fault))
})
