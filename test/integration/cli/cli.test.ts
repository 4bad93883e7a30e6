import { execFile, spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { parse } from 'yaml'
import { sentenceOf } from '../../../controller/cli/faults/fault.js'
import { rotateLog } from '../../../controller/cli/host/log-files.js'
import { type Listener, takenPorts } from '../../../controller/cli/host/ports.js'
import { createTestDatabase } from '../../support/database/database.js'
import { ownPorts } from '../../support/ports.js'
import { createKrater, type Krater, NOOP_DRIVERS, startKrater, until } from '../../support/worlds/krater.js'

const run = promisify(execFile)

/** A listener has something to do then, though nobody is there. */
const LISTENER = {
  KRATER_KEY_MANAGER_KEYSTONE_NOTIFICATIONS_ENABLE: 'true',
  KRATER_KEY_MANAGER_KEYSTONE_NOTIFICATIONS_TRANSPORT_URL: 'amqp://127.0.0.1:1/',
}
const PROCESSES = [
  'acme-validator',
  'health-manager',
  'identity-api',
  'key-manager-api',
  'key-manager-worker',
  'load-balancer-api',
  'network-api',
  'up',
  'worker',
]
const PROCESSES_AND_LISTENER = [...PROCESSES, 'keystone-listener'].sort()

const answers = async (krater: Krater, service: 'IDENTITY' | 'NETWORK' | 'LOAD_BALANCER'): Promise<boolean> =>
  fetch(`http://127.0.0.1:${krater.environment[`KRATER_${service}_PORT`]}/`, {
    signal: AbortSignal.timeout(2_000),
  }).then(
    () => true,
    () => false,
  )

/** Starts a command, waits until `ready` is true, ends it with a signal. @returns its exit status */
async function runAndStop(
  krater: Krater,
  args: string[],
  signal: NodeJS.Signals,
  ready: () => boolean | Promise<boolean>,
): Promise<{ status: number | null; milliseconds: number }> {
  const child = krater.start(...args)
  let words = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', chunk => {
      words += chunk
    })
  }
  const ended = once(child, 'exit') as Promise<[number | null]>
  await until(`${args.join(' ')} works`, async () => {
    if (child.exitCode !== null) throw new Error(`${args.join(' ')} ended: ${words}`)
    return ready()
  })
  const asked = performance.now()
  child.kill(signal)
  const [status] = await ended
  return { status, milliseconds: performance.now() - asked }
}

t.test('a build is outdated once its packages or Node.js change', async t => {
  const checkout = t.testdir({
    ...{ scripts: {}, controller: {}, 'package.json': '{"type":"module"}' },
    node_modules: { '.package-lock.json': '' },
  })
  cpSync(join(import.meta.dirname, '../../../scripts/build.js'), join(checkout, 'scripts/build.js'))
  mkdirSync(join(checkout, 'dist'))
  const [older, own] = ['program-1-v20.0.0.cache', `program-1-${process.version}.cache`]
  for (const name of ['krater.js', 'agent.js', older]) writeFileSync(join(checkout, 'dist', name), '')
  const { isBuilt } = await import(join(checkout, 'scripts/build.js'))
  t.equal(isBuilt(), false, 'what V8 compiled is of another version')
  writeFileSync(join(checkout, 'dist', own), '')
  t.equal(isBuilt(), true)
  const later = new Date(Date.now() + 1_000)
  utimesSync(join(checkout, 'node_modules/.package-lock.json'), later, later)
  t.equal(isBuilt(), false)
})

t.test('a port in use is reported with its holder and its setting', async t => {
  const [port = 0, portByName = 0] = await ownPorts(2)
  const bind = `require('dgram').createSocket('udp4').bind(${port}, '127.0.0.2', () => console.log('bound'))`
  const elsewhere = spawn(process.execPath, ['-e', bind])
  t.teardown(() => void elsewhere.kill())
  await once(elsewhere.stdout, 'data')
  const server = createServer().listen(port, '127.0.0.1')
  const byName = [
    createServer().listen(portByName, 'localhost'),
    createSocket('udp4').bind(portByName, 'localhost'),
  ] as const
  const socket = createSocket('udp4').bind(port, '127.0.0.1')
  await Promise.all([server, socket, ...byName].map(one => once(one, 'listening')))
  t.teardown(() => {
    server.close()
    socket.close()
    for (const one of byName) one.close()
  })
  const listener = { what: 'a service', setting: 'identity', host: '127.0.0.1', port }
  const sentencesFor = async (...listeners: Listener[]) => (await takenPorts(listeners)).map(sentenceOf)
  const [tcp, udp] = await sentencesFor({ ...listener, protocol: 'tcp' }, { ...listener, protocol: 'udp' })
  t.match(
    tcp,
    new RegExp(`Port ${port}/tcp on 127.0.0.1, needed for a service, is taken by \\S+ \\(pid ${process.pid}\\)`),
  )
  t.match(tcp, 'identity.port (KRATER_IDENTITY_PORT)')
  t.match(udp, new RegExp(`Port ${port}/udp .*pid ${process.pid}`))
  const named = { ...listener, host: 'localhost', port: portByName }
  const sentences = await sentencesFor({ ...named, protocol: 'tcp' }, { ...named, protocol: 'udp' })
  t.match(sentences, [`pid ${process.pid}`, `pid ${process.pid}`], 'also by host name')
  t.match(await sentencesFor({ ...listener, host: '192.0.2.1', protocol: 'tcp' }), [/does not have that address/])
  const [identity = 0, network = 0, keyManager = 0] = await ownPorts(3)
  const free = { KRATER_IDENTITY_PORT: String(identity), KRATER_NETWORK_PORT: String(network) }
  const taken = { KRATER_LOAD_BALANCER_PORT: String(port), KRATER_KEY_MANAGER_PORT: String(portByName) }
  const krater = await createKrater(t, { ...NOOP_DRIVERS, ...free, ...taken, KRATER_HEALTH_MANAGER_PORT: String(port) })
  const { status, stderr } = await krater.command('up')
  t.equal(status, 1)
  t.match(
    stderr.trim().split('\n'),
    [
      new RegExp(`^Port ${port}/tcp .*or set another load_balancer\\.port`),
      new RegExp(`^Port ${portByName}/tcp .*or set another key_manager\\.port`),
      new RegExp(`^Port ${port}/udp .*or set another health_manager\\.port`),
    ],
    'one sentence for each service',
  )
  t.notOk(existsSync(join(krater.directory, 'krater.yaml')), 'the next start is still the first')
  Object.assign(krater.environment, {
    KRATER_LOAD_BALANCER_PORT: String(keyManager),
    KRATER_KEY_MANAGER_PORT: String(keyManager),
  })
  t.match((await krater.command('up')).stderr, /^load_balancer\.port and key_manager\.port are both \d+/)
})

t.test('errors at the start are readable messages', async t => {
  await t.test('a wrong setting', async t => {
    const krater = await createKrater(t, { KRATER_NETWORK_DRIVER: 'ovs' })
    const { status, stderr } = await krater.command('up')
    t.equal(status, 1)
    t.match(
      stderr,
      'network.driver: "ovs" (from KRATER_NETWORK_DRIVER) is not allowed: it must be local or ovn or noop.',
    )
  })

  await t.test('an unreachable database, without its password', async t => {
    const [port] = await ownPorts(1)
    const url = `postgres://root:hunter2@127.0.0.1:${port}/krater`
    const krater = await createKrater(t, { ...NOOP_DRIVERS, KRATER_DATABASE_URL: url })
    for (const args of [['up'], ['up', '--detach'], ['db', 'migrate']]) {
      const { status, stderr } = await krater.command(...args)
      t.equal(status, 1)
      t.match(stderr, `The database postgres://root@127.0.0.1:${port}/krater cannot be used`)
      t.match(stderr, /nothing listens there \(ECONNREFUSED\)\. Start PostgreSQL there, or correct database\.url/)
      t.notMatch(stderr, /hunter2/)
    }
  })

  await t.test('a full disk', async t => {
    const short = await createKrater(t, NOOP_DRIVERS)
    await run('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=711', 'krater-test', short.directory])
    try {
      const { status, stderr } = await short.command('up')
      t.equal(status, 1)
      t.match(stderr, /The disk of \S+ has only \d MiB free; Krater needs 200 MiB/)
    } finally {
      await run('umount', ['-l', short.directory])
    }
  })
})

t.test('the whole service with noop drivers', async t => {
  const krater = await startKrater(t, { ...NOOP_DRIVERS, ...LISTENER })

  await t.test('all processes run, and clients can sign in', async t => {
    t.same(krater.running(), PROCESSES_AND_LISTENER)
    for (const name of ['krater.yaml', 'openrc', 'admin-openrc', 'clouds.yaml']) {
      t.equal(statSync(join(krater.directory, name)).mode & 0o777, 0o600, name)
    }
    const demo = await krater.api()
    const admin = await krater.api('krater-admin')
    t.not(demo.projectId, admin.projectId)
    t.match(await demo.request('load-balancer', 'GET', '/v2.0/lbaas/loadbalancers'), { loadbalancers: [] })
  })

  await t.test('a second "up" on the same directory names the first', async t => {
    const { status, stderr } = await krater.command('up')
    t.equal(status, 1)
    t.match(stderr, /already running on \S+ \(pid \d+\)/)
    t.same(krater.running(), PROCESSES_AND_LISTENER)
  })

  await t.test('the doctor finds no fault', async t => {
    const { status, stdout } = await krater.command('doctor')
    t.equal(status, 0, stdout)
    t.match(stdout, /clock +ok/)
    t.match(stdout, /load balancer API +ok/)
    t.match(stdout, 'No faults found.')
  })

  await t.test('a killed process is restarted', async t => {
    for (const name of krater.running().filter(name => name !== 'up')) {
      const before = krater.kill(name)
      await until(`${name} has ended`, () => !existsSync(`/proc/${before}/exe`))
      await until(`${name} is back`, () => krater.running().includes(name))
    }
    for (const api of ['IDENTITY', 'NETWORK', 'LOAD_BALANCER'] as const) {
      await until(`the API of ${api} answers`, () => answers(krater, api))
    }
    t.match(
      readFileSync(join(krater.directory, 'log/up.log'), 'utf8'),
      / identity-api was killed by SIGKILL; restarting it/,
    )
  })

  await t.test('a killed PostgreSQL is restarted, and the API works again', async t => {
    krater.kill('postgres')
    await until('the API works again', () =>
      krater.api().then(
        () => true,
        () => false,
      ),
    )
    t.match(await (await krater.api()).request('load-balancer', 'GET', '/v2.0/lbaas/loadbalancers'), {
      loadbalancers: [],
    })
  })

  await t.test('when the supervisor is killed, the other processes end', async t => {
    krater.kill('up')
    await until('they have ended', () => krater.running().length === 0)
    t.same(krater.running(), [])
  })

  await t.test('it starts again with its data after everything was killed', async t => {
    const before = readFileSync(join(krater.directory, 'krater.yaml'), 'utf8')
    await krater.killEverything()
    await krater.up()
    t.equal(readFileSync(join(krater.directory, 'krater.yaml'), 'utf8'), before)
    await krater.api()
    t.same(krater.running(), PROCESSES_AND_LISTENER)
  })

  await t.test('a second installation runs beside it', async t => {
    const other = await startKrater(t, NOOP_DRIVERS)
    t.not(other.instance(), krater.instance())
    await Promise.all([krater.api(), other.api()])
    await other.command('down')
    t.same(other.running(), [])
    t.same(krater.running(), PROCESSES_AND_LISTENER)
  })

  await t.test('down keeps the data; down --all removes it', async t => {
    t.match((await krater.command('down')).stdout, /Stopped: .*PostgreSQL|Stopped: .*up/)
    t.same(krater.running(), [])
    t.equal(await answers(krater, 'IDENTITY'), false)
    t.ok(existsSync(join(krater.directory, 'postgres/data/PG_VERSION')))
    writeFileSync(join(krater.directory, 'mine'), 'not Krater’s')
    writeFileSync(join(krater.directory, 'openrc.new-312'), 'a process was killed while it wrote this')
    const unconfirmed = await krater.command('down', '--all')
    t.equal(unconfirmed.status, 2)
    t.match(
      unconfirmed.stderr,
      /no terminal to ask for confirmation\. To confirm, add --yes\. Nothing was removed\.\n$/,
    )
    krater.environment.KRATER_COMPUTE_DRIVER = 'enrolled'
    t.match(
      (await krater.command('down', '--all')).stderr,
      /The database does not answer.*whether it has enrolled hosts/,
    )
    krater.environment.KRATER_COMPUTE_DRIVER = NOOP_DRIVERS.KRATER_COMPUTE_DRIVER
    t.ok(existsSync(join(krater.directory, 'postgres/data/PG_VERSION')))
    const { stdout } = await krater.command('down', '--all', '--yes')
    t.match(stdout, /still holds other files: mine\.\n/)
    t.ok(existsSync(join(krater.directory, 'mine')))
    t.notOk(existsSync(join(krater.directory, 'postgres')))
    rmSync(join(krater.directory, 'mine'))
  })

  await t.test('down --all removes nothing from a foreign directory', async t => {
    const foreign = t.testdir({ log: { syslog: 'lines' }, run: {} })
    const { status, stdout } = await krater.command('--state-dir', foreign, 'down', '--all', '--yes')
    t.equal(status, 0)
    t.match(stdout, /holds no Krater instance/)
    t.ok(existsSync(join(foreign, 'log/syslog')))
  })
})

t.test('in the foreground, Ctrl-C stops everything cleanly', async t => {
  const krater = await createKrater(t, NOOP_DRIVERS)
  const up = () => krater.running().length === PROCESSES.length && answers(krater, 'LOAD_BALANCER')
  const { status, milliseconds } = await runAndStop(krater, ['up'], 'SIGINT', up)
  t.equal(status, 0)
  t.ok(milliseconds < 15_000)
  t.same(krater.running(), [])
})

t.test('each process runs alone on an external database', async t => {
  const database = await createTestDatabase()
  t.teardown(database.drop)
  const krater = await createKrater(t, {
    ...NOOP_DRIVERS,
    KRATER_DATABASE_IDENTITY: database.urlOf('identity'),
    KRATER_DATABASE_NETWORK: database.urlOf('network'),
    KRATER_DATABASE_LOAD_BALANCER: database.urlOf('load_balancer'),
    KRATER_DATABASE_KEY_MANAGER: database.urlOf('key_manager'),
    ...LISTENER,
  })
  const migrated = await krater.command('db', 'migrate')
  t.equal(migrated.status, 0, migrated.stderr)
  t.equal((await krater.command('db', 'migrate')).status, 0, 'a second time, too')

  await t.test('one API alone', async t => {
    const { status } = await runAndStop(krater, ['api', '--only', 'identity'], 'SIGTERM', () =>
      answers(krater, 'IDENTITY'),
    )
    t.equal(status, 0)
  })
  await t.test('the doctor looks where the running processes listen', async t => {
    const { KRATER_IDENTITY_PORT: before } = krater.environment
    const [port = 0] = await ownPorts(1)
    krater.environment.KRATER_IDENTITY_PORT = String(port)
    const child = krater.start('api', '--only', 'identity')
    await until('it answers', () => answers(krater, 'IDENTITY'))
    delete krater.environment.KRATER_IDENTITY_PORT
    t.match((await krater.command('doctor')).stdout, new RegExp(`identity API +ok +http://127.0.0.1:${port}/v3`))
    const ended = once(child, 'exit')
    child.kill('SIGTERM')
    await ended
    t.match(parse(readFileSync(join(krater.directory, 'krater.yaml'), 'utf8')).identity.port, Number(before))
    krater.environment.KRATER_IDENTITY_PORT = before
  })
  await t.test('a process that cannot start exits, so that its supervisor can restart it', async t => {
    const child = spawn(process.execPath, ['dist/krater.js', 'health-manager'], {
      env: { ...krater.environment, KRATER_DATABASE_LOAD_BALANCER: 'postgres://krater:x@127.0.0.1:1/krater' },
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      timeout: 20_000,
    })
    let said = ''
    child.stderr?.setEncoding('utf8').on('data', chunk => {
      said += chunk
    })
    t.same(await once(child, 'exit'), [1, null])
    t.match(said, /ECONNREFUSED/)
    t.same(krater.running(), [])
  })
  for (const name of ['worker', 'health-manager', 'keystone-listener'] as const) {
    await t.test(`the ${name} alone`, async t => {
      const child = krater.start(name)
      let words = ''
      child.stdout?.setEncoding('utf8').on('data', chunk => {
        words += chunk
      })
      const ended = once(child, 'exit')
      await until(`${name} is ready`, () => words.includes(`${name} is ready`))
      t.same(krater.running(), [name])
      child.kill('SIGTERM')
      t.same(await ended, [0, null])
      t.same(krater.running(), [])
    })
  }
  await t.test('krater down stops processes that were started alone', async t => {
    const child = krater.start('worker')
    const ended = once(child, 'exit')
    await until('it runs', () => krater.running().includes('worker'))
    t.match((await krater.command('down')).stdout, /Stopped: worker/)
    t.same(await ended, [0, null])
  })
})

t.test('logs are rotated', async t => {
  const directory = t.testdir({ log: 'x'.repeat(1000) })
  const path = join(directory, 'log')
  rotateLog(path, 1000)
  t.notOk(existsSync(`${path}.1`), 'not before it is too large')
  rotateLog(path, 999)
  t.equal(statSync(path).size, 0)
  t.equal(statSync(`${path}.1`).size, 1000)

  writeFileSync(path, 'y'.repeat(1000))
  rmSync(`${path}.1`)
  mkdirSync(`${path}.1`)
  rotateLog(path, 999)
  t.equal(statSync(path).size, 0, 'also when the old lines cannot be kept')
  rotateLog('/proc/version/below', 0)
})
