import { spawn } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Knex } from 'knex'
import t from 'tap'
import { connect } from '../../../controller/database/connection.js'
import { migrate, prepareSchema } from '../../../controller/database/migrate.js'
import { startCluster } from '../../../controller/database/private-cluster.js'
import { many, one } from '../../../controller/database/query.js'
import { sql } from '../../../controller/database/sql.js'
import { createApplication } from '../../../controller/http/application.js'
import { startServer } from '../../../controller/http/server.js'
import { createLog } from '../../../controller/log/log.js'
import { migrations as networkMigrations } from '../../../controller/network/migrations/index.js'
import { claimDue, releaseClaim, renewClaim } from '../../../controller/queue/claim.js'
import { createTestDatabase } from '../../support/database/database.js'
import { startDatabaseProxy } from '../../support/faults/database-proxy.js'

t.test('prepared statements', async t => {
  const database = await createTestDatabase()
  t.teardown(database.drop)
  const db = database.of('load_balancer')

  t.test('return their rows, over the pool and within a transaction', async t => {
    const sum = sql`SELECT ${1}::integer + ${2}::integer AS sum, ${'a'}::text AS text`
    t.same(await many(db, sum), [{ sum: 3, text: 'a' }])
    await db.transaction(async trx => {
      await trx.raw('CREATE TEMPORARY TABLE seen ON COMMIT DROP AS SELECT 7 AS n')
      t.same(await many(trx, sql`SELECT n FROM seen WHERE n > ${0}`), [{ n: 7 }])
    })
  })

  t.test('use a question mark as an operator, not a binding', async t => {
    t.same(await many(db, sql`SELECT '{"a": 1}'::jsonb ? ${'a'} AS found`), [{ found: true }])
  })

  t.test('leave the connection usable after a failure, which rolls back its transaction', async t => {
    await t.rejects(many(db, sql`SELECT 1 / ${0}::integer`), /division by zero/)
    await t.rejects(
      db.transaction(async trx => many(trx, sql`SELECT 1 / ${0}::integer`)),
      /division by zero/,
    )
    t.same(await many(db, sql`SELECT 4 / ${2}::integer AS n`), [{ n: 2 }])
  })

  t.test('keep bound values out of errors', async t => {
    for (const fail of [
      () => db.raw('SELECT ?::text, 1 / 0', ['canary']),
      () => db('pool').insert({ description: 'canary' }),
      () => many(db, sql`SELECT ${'canary'}::text, 1 / 0`),
    ]) {
      const error: Error = await fail().then(
        () => new Error('It did not fail.'),
        (thrown: Error) => thrown,
      )
      t.notMatch(`${error.stack}${error.message}`, /canary|did not fail/)
    }
  })

  t.test('wait for a connection when many run at once, and none is lost', async t => {
    const rows = await Promise.all(Array.from({ length: 100 }, (_, n) => many(db, sql`SELECT ${n}::integer AS n`)))
    t.same(
      rows.flat(),
      Array.from({ length: 100 }, (_, n) => ({ n })),
    )
  })
})

t.test('claims', async t => {
  const database = await createTestDatabase()
  t.teardown(database.drop)
  const db = database.of('load_balancer')
  await db.raw(
    'CREATE TABLE job (id int PRIMARY KEY, done boolean NOT NULL DEFAULT false, lease_owner text, lease_until timestamptz, fence bigint NOT NULL DEFAULT 0)',
  )
  await db('job').insert(Array.from({ length: 20 }, (_, id) => ({ id })))
  const claimAs = (owner: string, limit: number) =>
    claimDue(db, { table: 'job', due: sql`NOT t.done`, order: sql`t.id`, owner, limit })

  await t.test('two workers at once never claim the same row', async t => {
    const rounds = await Promise.all(Array.from({ length: 8 }, (_, worker) => claimAs(`w${worker}`, 3)))
    const ids = rounds.flat().map(claim => claim.id)
    t.equal(new Set(ids).size, ids.length)
    t.ok(ids.length >= 18, `${ids.length} of 20 rows were taken`)
  })

  await t.test('a released row can be claimed again, and its former fence no longer renews it', async t => {
    await db('job').update({ lease_owner: null, lease_until: null })
    const [first] = await claimAs('a', 1)
    await releaseClaim(db, first!)
    const [second] = await claimAs('b', 1)
    t.equal(second!.id, first!.id)
    t.ok(second!.fence > first!.fence)
    t.equal(await renewClaim(db, first!), false)
    t.equal(await renewClaim(db, second!), true)
  })
})

t.test('a schema that a newer version migrated is refused with a clear message', async t => {
  const database = await createTestDatabase()
  t.teardown(database.drop)
  const db = database.of('network')
  await db('migration').insert({ name: '999-from-the-future' })
  await t.rejects(migrate(db, { schema: 'network', migrations: [] }), /newer Krater \(.*999-from-the-future/)
})

t.test('a database on this host that is slow to answer is waited for', async t => {
  const database = await createTestDatabase()
  t.teardown(database.drop)
  // Longer than a server elsewhere may take.
  const proxy = await startDatabaseProxy(database.urlOf('network'), 6_000)
  t.teardown(proxy.stop)
  const db = connect({ url: proxy.url, applicationName: 'patient' })
  t.same(await one(db, sql`SELECT 1 AS n`), { n: 1 })
  await db.destroy()
})

t.test('a migration may take longer than a request, but nothing else may', async t => {
  const database = await createTestDatabase()
  t.teardown(database.drop)
  const db = database.of('network')
  const limitOf = (of: Knex) => one(of, sql`SELECT current_setting('statement_timeout') AS limit`)
  const limits: unknown[] = []
  const up = async (trx: Knex) => {
    limits.push(await limitOf(trx))
  }
  const migrations = [...networkMigrations, { name: '998-long', up }]
  await migrate(db, { schema: 'network', migrations })
  limits.push(await limitOf(db))
  t.same(limits, [{ limit: '1h' }, { limit: '30s' }])
})

t.test('a service role cannot read the tables of another service', async t => {
  const database = await createTestDatabase()
  t.teardown(database.drop)
  await t.rejects(database.of('network').raw('SELECT * FROM load_balancer.load_balancer'), { code: '42501' })
})

t.test('an error about a role’s password names the role, not the password', async t => {
  const database = await createTestDatabase()
  t.teardown(database.drop)
  const error = await prepareSchema(database.of('network'), 'identity', 'wonder?land').catch(error => error)
  t.match(error, { code: '42501', message: /^ALTER ROLE krater_identity: / })
  t.notMatch(`${error.message} ${error.stack}`, /wonder/)
})

t.test('a cluster whose creation was killed is created again', async t => {
  // A short path, which a socket needs, and which the postgres account can reach.
  const directory = mkdtempSync(join(tmpdir(), 'krater-cluster-'))
  chmodSync(directory, 0o755)
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const killed = t.rejects(startCluster({ directory, durable: false }))
  const begun = () => readdirSync(directory).some(name => existsSync(join(directory, name, 'PG_VERSION')))
  for (let tries = 0; !begun() && tries < 2000; tries++) await sleep(5)
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').trim().split(' ').map(Number)
  const initdb = children.filter(pid => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(directory))
  t.equal(initdb.length, 1)
  for (const pid of initdb) process.kill(pid, 'SIGKILL')
  await killed
  const cluster = await startCluster({ directory, durable: false })
  await cluster.stop()
  t.notOk(
    readdirSync(directory).some(name => name.startsWith('data.new')),
    'the first attempt leaves nothing',
  )
})

t.test('another process with a killed PostgreSQL’s PID is not mistaken for it', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'krater-cluster-'))
  chmodSync(directory, 0o755)
  const cluster = await startCluster({ directory, durable: false })
  t.teardown(async () => {
    await cluster.stop()
    rmSync(directory, { recursive: true, force: true })
  })
  const { uid, gid } = statSync(join(directory, 'data'))
  const pidFile = join(directory, 'data/postmaster.pid')
  // Its child exits at once and stays a zombie, because the parent never waits for it.
  const parent = spawn('sh', ['-c', 'true & exec sleep 60'], { uid, gid, cwd: '/' })
  t.teardown(() => parent.kill())
  const stateOf = (pid: number) => /\) (\w) /.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))?.[1]
  const childOf = (pid: number) => Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8'))
  for (let tries = 0; !childOf(parent.pid!) || stateOf(childOf(parent.pid!)) !== 'Z'; tries++) {
    if (tries === 400) throw new Error('No remains found')
    await sleep(5)
  }
  for (const [what, pid] of Object.entries({ 'another program': parent.pid!, remains: childOf(parent.pid!) })) {
    const lines = readFileSync(pidFile, 'utf8').split('\n')
    await cluster.stop()
    writeFileSync(pidFile, [pid, ...lines.slice(1)].join('\n'))
    chownSync(pidFile, uid, gid)
    const again = await startCluster({ directory, durable: false })
    const db = connect({ url: again.administratorUrl, applicationName: 'test', poolSize: 1 })
    t.match(await db.raw('SELECT 1 AS one'), { rows: [{ one: 1 }] }, what)
    await db.destroy()
  }
})

t.test('an API answers 503 while its database is unavailable and serves again afterwards', async t => {
  const database = await createTestDatabase()
  const proxy = await startDatabaseProxy(database.urlOf('network'))
  const db = connect({ url: proxy.url, applicationName: 'test' })
  const presentFault = ({ status, message }: { status: number; message: string }) => ({ status, message })
  const app = createApplication({ name: 'test', log: createLog('test', 'silent'), presentFault })
  app.use(async ctx => {
    ctx.body = (await db.raw('SELECT 1 AS one')).rows
  })
  const server = await startServer(app, { host: '127.0.0.1', port: 0 })
  t.teardown(async () => {
    await server.stop()
    await db.destroy()
    await proxy.stop()
    await database.drop()
  })
  const ask = () => fetch(server.url, { signal: AbortSignal.timeout(20_000) })
  t.equal((await ask()).status, 200)
  const printed = t.capture(console, 'log')
  await proxy.disconnect()
  for (const when of ['over an open connection', 'over a new connection']) {
    const reply = await ask()
    t.match([reply.status, await reply.json()], [503, { message: /temporarily unavailable/ }], when)
  }
  await proxy.reconnect()
  t.equal((await ask()).status, 200)
  t.same(printed(), [], 'knex prints nothing')
})
