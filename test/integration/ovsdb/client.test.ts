import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import type { OvsdbAddress } from '../../../controller/ovsdb/address.js'
import { OvsdbClient } from '../../../controller/ovsdb/client.js'
import type { OvsdbTls } from '../../../controller/ovsdb/connection.js'
import { OvsdbUnreachable, RowsGone, TransactionRefused } from '../../../controller/ovsdb/errors.js'
import { createFrameReader } from '../../../controller/ovsdb/frames.js'
import type { Operation } from '../../../controller/ovsdb/transaction.js'
import { ownPorts } from '../../support/ports.js'
import {
  leaderOf,
  type OvsdbServer,
  ovsdbServer,
  serverCluster,
  standaloneServer,
  TEST_TABLES,
  writeTestSchema,
} from '../../support/services/ovsdb.js'
import { quiet } from '../../support/worlds/machines.js'

const run = promisify(execFile)

type TestClient = OvsdbClient<typeof TEST_TABLES>
type TestOperation = Operation<typeof TEST_TABLES>

function openClient(
  t: Test,
  addresses: readonly OvsdbAddress[],
  { tls, silenceMs = 1_000 }: { tls?: OvsdbTls; silenceMs?: number } = {},
): TestClient {
  const client = new OvsdbClient({
    ...{ addresses, database: 'Test', tables: TEST_TABLES, tls, log: quiet },
    pauseMs: { least: 10, most: 200 },
    limits: { silenceMs },
  })
  t.teardown(() => client.stop())
  return client
}

/** A directory with a short path: those of sockets have at most 107 characters. */
function shortDirectory(t: Test): string {
  const directory = mkdtempSync(join(tmpdir(), 'ovs-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}

async function startServer(t: Test, directory: string): Promise<OvsdbServer> {
  const server = await standaloneServer(directory)
  await server.start()
  t.teardown(() => server.end('SIGKILL'))
  return server
}

/** A holder with items, as one transaction. */
function holderWith(count: number, name = 'all'): { holder: string; items: string[]; operations: TestOperation[] } {
  const holder = randomUUID()
  const items = Array.from({ length: count }, () => randomUUID())
  const operations: TestOperation[] = [
    ...items.map(
      (uuid, index): TestOperation => ({
        ...{ op: 'insert', table: 'Item', uuid },
        row: {
          name: `item ${index}`,
          notes: { number: String(index), 'krater:note': '{"}' },
          words: ['a', `w${index}`],
        },
      }),
    ),
    { op: 'insert', table: 'Holder', uuid: holder, row: { name, items: [...items].sort() } },
  ]
  return { holder, items, operations }
}

t.test('a copy follows its database, and transactions are checked', async t => {
  const server = await startServer(t, shortDirectory(t))
  const [writer, reader] = [openClient(t, [server.address]), openClient(t, [server.address])]
  const { holder, items, operations } = holderWith(3)
  const [first = '', second = ''] = items
  await writer.transact(operations)
  t.same(writer.row('Holder', holder)?.items, [...items].sort(), 'the writer has it when the transaction returns')
  t.ok(await reader.until(() => reader.rows('Item').size === 3, 5_000))
  t.same(reader.row('Item', first)?.notes, { 'krater:note': '{"}', number: '0' })

  await writer.transact([
    { op: 'update', table: 'Item', uuid: first, row: { flag: true, words: [] } },
    {
      ...{ op: 'mutate', table: 'Item', uuid: second },
      mutations: [
        { column: 'notes', remove: ['number'] },
        { column: 'notes', add: { other: '1' } },
        { column: 'words', add: ['b'] },
        { column: 'words', remove: ['a'] },
      ],
    },
    { op: 'mutate', table: 'Holder', uuid: holder, mutations: [{ column: 'count', increment: 5 }] },
  ])
  t.ok(await reader.until(() => reader.row('Holder', holder)?.count === 5, 5_000))
  t.match(reader.row('Item', first), { flag: true, words: [], name: 'item 0' })
  t.same(reader.row('Item', second)?.notes, { 'krater:note': '{"}', other: '1' })
  t.same(reader.row('Item', second)?.words, ['b', 'w1'])
  await writer.transact([{ op: 'update', table: 'Item', uuid: first, row: { flag: null } }])
  t.ok(await reader.until(() => reader.row('Item', first)?.flag === null, 5_000))

  await t.rejects(writer.transact([{ op: 'delete', table: 'Holder', uuid: randomUUID() }]), { name: RowsGone.name })
  const twice = holderWith(1)
  await t.rejects(writer.transact(twice.operations), TransactionRefused, 'the index on the name')
  t.equal(writer.rows('Item').size, 3, 'nothing of a refused transaction happens')
  await writer.transact([
    { op: 'mutate', table: 'Holder', uuid: holder, mutations: [{ column: 'items', remove: [first] }] },
  ])
  t.ok(await reader.until(() => reader.row('Item', first) === null, 5_000), 'what nothing holds is gone')
})

t.test('100,000 rows come in one update, and a change of one of them comes alone', async t => {
  const server = await startServer(t, shortDirectory(t))
  const writer = openClient(t, [server.address])
  const { holder, items, operations } = holderWith(5_000)
  await writer.transact(operations)
  for (let added = 0; added < 95_000; added += 5_000) {
    const more = holderWith(5_000, `holder ${added}`)
    await writer.transact(more.operations)
  }
  // As the product has it: a server that works on so much is silent for seconds on a busy machine.
  const reader = openClient(t, [server.address], { silenceMs: 5_000 })
  await reader.ready(60_000)
  t.equal(reader.rows('Item').size, 100_000)
  t.equal(reader.row('Holder', holder)?.items.length, 5_000)
  const seen: number[] = []
  reader.onChange(changes => seen.push(changes.length))
  await writer.transact([{ op: 'update', table: 'Item', uuid: items[5] ?? '', row: { name: 'changed' } }])
  t.ok(await reader.until(() => reader.row('Item', items[5] ?? '')?.name === 'changed', 5_000))
  t.same(seen, [1])
})

t.test('a server that restarts is followed again', async t => {
  const directory = shortDirectory(t)
  const server = await startServer(t, directory)
  const client = openClient(t, [server.address])
  const { holder, operations } = holderWith(10)
  await client.transact(operations)
  const database = join(directory, 'test.db')
  const backup = join(directory, 'backup.db')
  copyFileSync(database, backup)
  await client.transact([{ op: 'update', table: 'Holder', uuid: holder, row: { name: 'later' } }])
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    await server.end(signal)
    t.ok(await client.until(() => client.state.address === null, 5_000), 'it notices')
    t.equal(client.rows('Item').size, 10, 'the copy stays')
    await t.rejects(client.transact(holderWith(1, 'x').operations, { readyMs: 100 }), OvsdbUnreachable)
    await server.start()
    await client.ready(5_000)
    t.equal(client.row('Holder', holder)?.name, 'later')
  }
  await server.end()
  copyFileSync(backup, database)
  await server.start()
  await client.ready(5_000)
  t.equal(client.row('Holder', holder)?.name, 'all', 'and an old copy of its database is seen')
})

t.test('servers that lack newer methods are followed likewise', async t => {
  const server = await startServer(t, shortDirectory(t))
  for (const unknown of [['monitor_cond_since'], ['monitor_cond_since', 'monitor_cond']]) {
    const path = join(shortDirectory(t), 'old')
    const proxy = oldServer(server.address.kind === 'unix' ? server.address.path : '', unknown)
    await new Promise<void>(resolve => proxy.listen(path, resolve))
    t.teardown(() => void proxy.close())
    const client = openClient(t, [{ kind: 'unix', path }])
    const { holder, items, operations } = holderWith(3, unknown.join())
    await client.transact(operations)
    t.same(client.row('Holder', holder)?.items, [...items].sort())
    const [first = ''] = items
    await client.transact([
      { op: 'mutate', table: 'Item', uuid: first, mutations: [{ column: 'words', add: ['new'] }] },
      { op: 'mutate', table: 'Holder', uuid: holder, mutations: [{ column: 'items', remove: items.slice(1) }] },
    ])
    t.ok(await client.until(() => client.row('Item', items[1] ?? '') === null, 5_000))
    t.same(client.row('Item', first)?.words, ['a', 'new', 'w0'])
    await client.stop()
  }
})

/** A server before another one that does not know some methods. */
function oldServer(path: string, unknown: readonly string[]) {
  return createServer(socket => {
    const server = connect(path)
    const read = createFrameReader()
    socket.on('data', (piece: Buffer) => {
      for (const text of read(piece)) {
        const { id, method } = JSON.parse(text)
        if (unknown.includes(method)) socket.write(JSON.stringify({ id, result: null, error: 'unknown method' }))
        else server.write(text)
      }
    })
    server.on('data', piece => socket.write(piece))
    for (const [one, other] of [
      [socket, server],
      [server, socket],
    ] as const) {
      one.on('error', () => other.destroy())
      one.on('close', () => other.destroy())
    }
  })
}

t.test('TLS needs the right authority on both sides', async t => {
  const directory = shortDirectory(t)
  const made = async (name: string) => {
    const own = join(directory, name)
    mkdirSync(own)
    const openssl = (...words: string[]) => run('openssl', words, { cwd: own })
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']
    await openssl('req', '-x509', ...key, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', `/CN=${name}`)
    await openssl(
      'req',
      '-x509',
      ...key,
      '-keyout',
      'key.pem',
      '-out',
      'certificate.pem',
      '-subj',
      `/CN=${name} peer`,
      '-CA',
      'ca.pem',
      '-CAkey',
      'ca.key',
    )
    const text = (file: string) => readFileSync(join(own, file), 'utf8')
    return { own, tls: { ca: text('ca.pem'), certificate: text('certificate.pem'), key: text('key.pem') } }
  }
  const [right, wrong] = [await made('right'), await made('wrong')]
  const [port = 0] = await ownPorts(1)
  const database = join(directory, 'test.db')
  await run('ovsdb-tool', ['create', database, writeTestSchema(directory)])
  const address: OvsdbAddress = { kind: 'ssl', host: '127.0.0.1', port }
  const file = (name: string) => join(right.own, name)
  const server = ovsdbServer(directory, {
    ...{ database, address, remotes: [`pssl:${port}:127.0.0.1`] },
    words: [
      `--private-key=${file('key.pem')}`,
      `--certificate=${file('certificate.pem')}`,
      `--ca-cert=${file('ca.pem')}`,
    ],
  })
  await server.start()
  t.teardown(() => server.end('SIGKILL'))
  const client = openClient(t, [address], { tls: right.tls })
  await client.transact(holderWith(1).operations)
  const stranger = openClient(t, [address], { tls: wrong.tls })
  await t.rejects(stranger.ready(1_000), { name: OvsdbUnreachable.name, message: /cannot be used/ })
  t.match(stranger.state.problem, /certificate|self-signed|issuer/i)
})

t.test('a cluster that loses its leader 20 times loses no change and doubles none', async t => {
  const directory = shortDirectory(t)
  const servers = await serverCluster(directory, await ownPorts(6))
  t.teardown(() => Promise.all(servers.map(server => server.end('SIGKILL'))))
  const client = openClient(
    t,
    servers.map(({ address }) => address),
  )
  const { holder, operations } = holderWith(0)
  await client.transact(operations)
  let added = 0
  let isOver = false
  /** One change after the other; one whose outcome is unknown is looked up, and repeated if it is not there. */
  const changing = (async () => {
    while (!isOver) {
      const uuid = randomUUID()
      for (let isThere = false; !isThere; ) {
        await client
          .transact(
            [
              { op: 'insert', table: 'Item', uuid, row: { name: `item ${added}` } },
              { op: 'mutate', table: 'Holder', uuid: holder, mutations: [{ column: 'items', add: [uuid] }] },
            ],
            { readyMs: 20_000 },
          )
          .catch(error => {
            if (!(error instanceof OvsdbUnreachable || error instanceof TransactionRefused)) throw error
          })
        await client.ready(20_000)
        isThere = client.row('Item', uuid) !== null
      }
      added += 1
    }
  })()
  for (let time = 0; time < 20; time++) {
    const leader = await leaderOf(servers)
    const before = added
    await leader.end('SIGKILL')
    await client.until(() => added > before + 1, 30_000)
    await leader.start()
    t.ok(added > before, `changes go on after loss ${time + 1}`)
  }
  isOver = true
  await changing
  const reader = openClient(
    t,
    servers.map(({ address }) => address),
  )
  await reader.ready(20_000)
  t.equal(reader.rows('Item').size, added)
  t.equal(new Set([...reader.rows('Item').values()].map(({ name }) => name)).size, added)
})
