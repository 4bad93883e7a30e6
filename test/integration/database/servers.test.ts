import { execFile } from 'node:child_process'
import { appendFileSync, chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { connect as connectSocket, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import t from 'tap'
import { connect, type Database } from '../../../controller/database/connection.js'
import { isDatabaseAway } from '../../../controller/database/database-away.js'
import { type Cluster, postgresPrograms, startCluster } from '../../../controller/database/private-cluster.js'
import { execute, one } from '../../../controller/database/query.js'
import { NotPrimary } from '../../../controller/database/servers.js'
import { sql } from '../../../controller/database/sql.js'
import { sqlState } from '../../../controller/database/transaction.js'
import { createLog } from '../../../controller/log/log.js'
import { listenForWakeUps } from '../../../controller/queue/wake-up.js'
import { eventually } from '../../support/eventually.js'
import { ownPorts } from '../../support/ports.js'
import { endTogether } from '../../support/socket-pair.js'

/** A primary and its standby, each behind a proxy that takes the place of its network. */
const run = promisify(execFile)
const root = mkdtempSync(join(tmpdir(), 'kr-servers-'))
chmodSync(root, 0o755)
t.teardown(() => rmSync(root, { recursive: true, force: true }))

type Server = { port: number; cluster: Cluster; setCable: (isPlugged: boolean) => void }

/** @param port where clients reach it; connections stay open without its cable, and nothing passes */
async function behindCable(cluster: Cluster, socket: string, port: number): Promise<Server> {
  const sockets = new Set<Socket>()
  let isPlugged = true
  const server = createServer(client => {
    const upstream = connectSocket(join(socket, '.s.PGSQL.5432'))
    endTogether(client, upstream, sockets)
    client.on('data', data => isPlugged && upstream.write(data))
    upstream.on('data', data => isPlugged && client.write(data))
  })
  await new Promise<void>(resolve => server.listen(port, '127.0.0.1', resolve))
  t.teardown(() => {
    server.close()
    for (const open of sockets) open.destroy()
  })
  const setCable = (plugged: boolean) => {
    isPlugged = plugged
  }
  return { port, cluster, setCable }
}

async function startServers(): Promise<[primary: Server, standby: Server]> {
  const [first = 0, second = 0] = await ownPorts(2)
  const [a, b] = [join(root, 'a'), join(root, 'b')]
  const primary = await startCluster({ directory: a, durable: false })
  t.teardown(primary.stop)
  appendFileSync(join(a, 'data/pg_hba.conf'), 'local replication postgres peer map=superuser\n')
  await administer(primary, 'SELECT pg_reload_conf()')
  mkdirSync(b)
  const { uid, gid } = statSync(join(a, 'data'))
  chownSync(b, uid, gid)
  const source = ['-h', join(a, 'socket'), '-U', 'postgres', '-c', 'fast', '-R']
  await run(join(postgresPrograms(), 'pg_basebackup'), ['-D', join(b, 'data'), ...source], { uid, gid, cwd: '/' })
  const standby = await startCluster({ directory: b, durable: false })
  t.teardown(standby.stop)
  return [await behindCable(primary, join(a, 'socket'), first), await behindCable(standby, join(b, 'socket'), second)]
}

async function administer(cluster: Cluster, statement: string): Promise<void> {
  const database = connect({ url: cluster.administratorUrl, applicationName: 'test' })
  try {
    await database.raw(statement)
  } finally {
    await database.destroy()
  }
}

const [former, latter] = await startServers()
const urlOf = (...servers: readonly Server[]) =>
  `postgres://postgres@${servers.map(({ port }) => `127.0.0.1:${port}`).join(',')}/postgres?target_session_attrs=read-write`
const pools: Database[] = []
t.teardown(() => Promise.all(pools.map(pool => pool.destroy())))
const open = (...servers: readonly Server[]) => {
  const pool = connect({ url: urlOf(...servers), applicationName: 'test' })
  pools.push(pool)
  return pool
}
/** The directory of the server that answers. */
const whereIs = async (database: Database) => {
  const { directory } = await one(
    database,
    sql<{ directory: string }>`SELECT current_setting('data_directory') AS directory`,
  )
  return directory.split('/').at(-2)
}
const seconds = async (work: Promise<unknown>) => {
  const since = performance.now()
  await work
  return (performance.now() - since) / 1000
}

t.test('connections lead to the primary, wherever it stands in the list', async t => {
  for (const order of [
    [former, latter],
    [latter, former],
  ]) {
    const database = open(...order)
    t.same(await Promise.all([1, 2, 3].map(() => whereIs(database))), ['a', 'a', 'a'])
  }
  const error: unknown = await whereIs(open(latter)).catch(thrown => thrown)
  t.type(error, NotPrimary)
  t.ok(isDatabaseAway(error), 'without a primary the database is away')
})

t.test('a primary without a free connection is told, not that the other one takes no writes', async t => {
  await administer(former.cluster, "CREATE ROLE crowd LOGIN PASSWORD 'crowd'")
  const crowd: pg.Client[] = []
  t.teardown(() => Promise.all(crowd.map(client => client.end())))
  let isFull = false
  while (!isFull) {
    const client = new pg.Client({ connectionString: former.cluster.urlOf('crowd', 'crowd') })
    client.on('error', () => undefined)
    try {
      await client.connect()
      crowd.push(client)
    } catch (error) {
      t.equal(sqlState(error), '53300', String(error))
      isFull = true
    }
  }
  for (const order of [
    [former, latter],
    [latter, former],
  ]) {
    const pool = connect({ url: urlOf(...order).replace('postgres@', 'crowd:crowd@'), applicationName: 'test' })
    pools.push(pool)
    const error: unknown = await whereIs(pool).catch(thrown => thrown)
    t.equal(sqlState(error), '53300', String(error))
    t.ok(isDatabaseAway(error), 'the work may be tried again')
  }
})

t.test('a server that does not answer costs a second, and one that refuses none', async t => {
  latter.setCable(false)
  t.ok((await seconds(whereIs(open(latter, former)))) < 4)
  latter.setCable(true)
  const [unused = 0] = await ownPorts(1)
  t.equal(await whereIs(open({ ...latter, port: unused }, former)), 'a')
})

t.test('a primary that was set to read only is left, also in the middle of a transaction', async t => {
  const database = open(former, latter)
  const failure = await database
    .transaction(async trx => {
      await trx.raw('SET LOCAL transaction_read_only = on')
      await trx.raw('CREATE TABLE never (id integer)')
    })
    .catch(thrown => thrown)
  t.equal(sqlState(failure), '25006', 'the error is that of the server')
  t.ok(isDatabaseAway(failure))
  t.equal(await whereIs(database), 'a')
})

t.test('when the primary vanishes, what waits for it fails once another one is there', async t => {
  const pool = open(former, latter)
  await execute(pool, sql`CREATE TABLE change (id integer)`)
  const connections = [1, 2, 3, 4]
  await Promise.all(connections.map(() => execute(pool, sql`SELECT pg_sleep(0.3)`)))
  const woken: (string | null)[] = []
  const wakeUps = await listenForWakeUps({
    ...{ databaseUrl: urlOf(former, latter), channel: 'test', log: createLog('test', 'silent') },
    onWake: payload => woken.push(payload),
  })
  t.teardown(wakeUps.stop)
  t.same(woken, [null])
  former.setCable(false)
  const plain = execute(pool, sql`INSERT INTO change VALUES (1)`).catch(thrown => thrown)
  const inTransaction = pool
    .transaction(trx => execute(trx, sql`INSERT INTO change VALUES (2)`))
    .catch(thrown => thrown)
  await administer(latter.cluster, 'SELECT pg_promote()')
  const waited = await seconds(Promise.all([plain, inTransaction]))
  t.ok(waited < 12, `after ${waited.toFixed(1)} s, not after the time limit of a statement`)
  for (const failure of await Promise.all([plain, inTransaction])) {
    t.ok(isDatabaseAway(failure), String(failure))
  }
  const places = await Promise.all(connections.map(() => whereIs(pool)))
  t.same(places, ['b', 'b', 'b', 'b'], 'connections that were idle have ended, too')
  await eventually('the listener has moved', () => woken.length > 1, 3_000)
  await execute(pool, sql`SELECT pg_notify('test', 'here')`)
  await eventually('a notification of the new primary arrives', () => woken.includes('here'))
})

t.test('a primary that another has replaced is not used again, though it takes writes', async t => {
  former.setCable(true)
  const database = open(former, latter)
  for (let round = 0; round < 3; round++) t.equal(await whereIs(database), 'b')
})
