import { execFileSync, spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { join as joinHosts } from '../../../controller/cli/commands/up/join.js'
import { settingsForHost, withDatabaseFiles } from '../../../controller/cli/first-start/host-settings.js'
import { writeOutput } from '../../../controller/cli/host/output-file.js'
import {
  filesOf,
  serviceUrl,
  usesPrivateCluster,
  whyNotFromElsewhere,
  withFiles,
} from '../../../controller/cli/state-directory/database-urls.js'
import {
  type HostBundle,
  packBundle,
  placeFiles,
  unpackBundle,
} from '../../../controller/cli/state-directory/host-bundle.js'
import { VERSION } from '../../../controller/cli/wiring/this-host.js'
import { configurationFile, parseConfiguration } from '../../../controller/config/load.js'
import { serversOf } from '../../../controller/database/url.js'
import { copyCommands } from '../../../controller/network/local/host/heartbeat-copies.js'

const CLUSTER =
  'postgres://a:b%40c@n1:5432,n2:5433/krater?target_session_attrs=read-write&sslmode=verify-full&sslrootcert=/etc/ca.pem'

t.test('URLs of a database with several hosts keep them in their order', async t => {
  t.equal(
    serviceUrl(CLUSTER, 'krater_network', 'p/w'),
    'postgres://krater_network:p%2Fw@n1:5432,n2:5433/krater?target_session_attrs=read-write&sslmode=verify-full&sslrootcert=/etc/ca.pem',
  )
  t.same(filesOf(CLUSTER), ['/etc/ca.pem'])
  t.equal(withFiles(CLUSTER, new Map([['/etc/ca.pem', '/x/c a.pem']])).split('sslrootcert=')[1], '%2Fx%2Fc+a.pem')
  t.equal(serviceUrl('postgres://postgres@/postgres?host=%2Fs', 'r', 'p'), 'postgres://r:p@/postgres?host=%2Fs')
  const config = parseConfiguration(`database: { url: "${CLUSTER}" }`, {})
  t.equal(usesPrivateCluster(config, '/state'), false)
})

t.test('a database that other machines do not reach, or only in clear, is named with the way out', async t => {
  const cases: [url: string, says: RegExp | null][] = [
    ['postgres://a:geheim@/krater?host=/run/postgresql', /Other machines do not reach the database at (?!.*geheim)/],
    ['postgres://a:b@localhost/krater?sslmode=verify-full', /do not reach/],
    ['postgres://a:b@127.0.0.1:5432/krater?sslmode=verify-full', /do not reach/],
    ['postgres://a:b@[::1]/krater?sslmode=disable', /do not reach/],
    ['postgres://a:b@db1:5432,localhost:5433/krater?sslmode=disable', /do not reach/],
    ['postgres://a:geheim@db.example.org/krater', /not encrypted(?!.*geheim).*sslmode=verify-full.*sslmode=disable/],
    ['postgres://a:b@db.example.org/krater?sslmode=disable', null],
    [CLUSTER, null],
  ]
  for (const [url, says] of cases) {
    const problem = whyNotFromElsewhere(url)
    if (says === null) t.equal(problem, null, url)
    else t.match(problem, says, url)
  }
})

t.test('each server of a cluster is asked by a URL of its own', async t => {
  const rest = 'krater?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem'
  t.match(serversOf(CLUSTER), {
    urls: [`postgres://a:b%40c@n1:5432/${rest}`, `postgres://a:b%40c@n2:5433/${rest}`],
    mustBePrimary: true,
  })
  const single = 'postgres://a:b@[fd00::1]:5432/krater'
  t.match(serversOf(single), { urls: [single], mustBePrimary: false })
  const socket = 'postgres://a:b@/krater?host=%2Frun%2Fpostgresql'
  t.match(serversOf(socket), { urls: [socket], mustBePrimary: false })
  const nameOf = (role: string) => serversOf(CLUSTER.replace('a:b%40c', role)).name
  t.equal(nameOf('x:y'), nameOf('z'), 'roles share what is known of a cluster')
})

const HERE = `# kept
host: { name: one, address: 192.0.2.1 }
database:
  url: postgres://postgres:sup@db/krater?sslmode=disable
  load_balancer: postgres://lb:x@db/krater?sslmode=disable
load_balancer:
  host: 192.0.2.1
key_manager:
  host: 0.0.0.0
  channel: { host: 192.0.2.1 }
  public_url: https://keys.example.org
network: { cidr: 10.9.0.0/16 }
`

t.test('another host gets the common settings, its own name and address, and the same endpoints', async t => {
  const config = parseConfiguration(HERE, { KRATER_DATABASE_NETWORK: 'postgres://n:y@db/krater?sslmode=disable' })
  const text = settingsForHost(HERE, config, { name: 'two', address: '192.0.2.2' })
  t.match(text, /^# kept\n/)
  const there = parseConfiguration(text, {})
  t.match(there, {
    host: { name: 'two', address: '192.0.2.2' },
    load_balancer: { host: '192.0.2.2', public_url: 'http://192.0.2.1:9876' },
    key_manager: { host: '0.0.0.0', channel: { host: '192.0.2.2' }, public_url: 'https://keys.example.org' },
    network: { cidr: '10.9.0.0/16', host: '127.0.0.1' },
  })
  t.equal(there.network.public_url, undefined, 'each host reaches its own at loopback')
  t.same(there.database, {
    load_balancer: 'postgres://lb:x@db/krater?sslmode=disable',
    network: 'postgres://n:y@db/krater?sslmode=disable',
  })
  const moved = withDatabaseFiles(
    `database: { identity: "${CLUSTER}" }`,
    new Map([['/etc/ca.pem', '/state/keys/database-1']]),
  )
  t.same(filesOf(parseConfiguration(moved, {}).database.identity ?? ''), ['/state/keys/database-1'])
})

t.test('what killed commands left of bundles goes with the next one', async t => {
  const directory = t.testdir({ run: {} })
  const work = join(directory, 'run')
  const file = join(directory, 'two.tar')
  const { pid } = spawnSync('true')
  for (const name of [`bundle-${pid}-a`, `bundle-${process.pid}-b`, 'bundle-c']) mkdirSync(join(work, name))
  const files = [`two.tar.new-${process.pid}-d`, `other.tar.new-${pid}`]
  for (const name of [`two.tar.new-${pid}`, ...files]) writeFileSync(join(directory, name), 'keys')
  // Others may write there too.
  const folder = `two.tar.new-${pid}-folder`
  mkdirSync(join(directory, folder))
  writeFileSync(join(directory, folder, 'file'), '')
  const kept = [...files, folder]
  const host = { id: randomUUID(), name: 'two', address: '192.0.2.2' }
  const manifest: HostBundle['manifest'] = { format: 1, version: '1', ...host, databaseFiles: {} }
  await writeOutput(file, path => packBundle(path, { manifest, settings: HERE, files: new Map() }, work))
  t.same(readdirSync(work).sort(), [`bundle-${process.pid}-b`, 'bundle-c'].sort(), 'those of others stay')
  t.same(readdirSync(directory).sort(), [...kept, 'run', 'two.tar'].sort())
})

t.test('a host that joins again keeps its settings and keys', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'kr-join-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  mkdirSync(join(directory, 'run'))
  const [file, state] = [join(directory, 'two.tar'), join(directory, 'state')]
  const manifest: HostBundle['manifest'] = {
    ...{ format: 1, version: VERSION, id: randomUUID(), name: 'two', address: '192.0.2.2', databaseFiles: {} },
  }
  const files = new Map([['amphoraMaster', Buffer.from('of the bundle')]])
  await packBundle(file, { manifest, settings: HERE, files }, join(directory, 'run'))
  await joinHosts(state, file)
  const settings = configurationFile(state)
  t.equal(readFileSync(settings, 'utf8'), HERE)
  writeFileSync(settings, `${HERE}# changed\n`)
  await joinHosts(state, file)
  t.equal(readFileSync(settings, 'utf8'), `${HERE}# changed\n`)
  rmSync(settings)
  await joinHosts(state, file)
  t.equal(readFileSync(settings, 'utf8'), HERE, 'a join that was interrupted goes on')
})

t.test('a bundle comes out as it was packed, and nothing else passes for one', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'krater-bundle-test-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  const work = join(directory, 'run')
  mkdirSync(work)
  const file = join(directory, 'bundle.tar')
  const bundle: HostBundle = {
    manifest: {
      ...{ format: 1, version: '1', id: '4e8c9a4c-6a0e-4b6e-8a43-0d1d6a1c7c11', name: 'two', address: '192.0.2.2' },
      databaseFiles: { 'database-1': '/etc/ca.pem' },
    },
    settings: HERE,
    files: new Map([
      ['amphoraMaster', Buffer.from('key')],
      ['database-1', Buffer.from('ca')],
    ]),
  }
  writeFileSync(file, '', { mode: 0o600 })
  await packBundle(file, bundle, work)
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.same(await unpackBundle(file, work), bundle)
  t.same(readdirSync(work), [], 'no copy of the keys is left')
  placeFiles(bundle.files, new Map([['amphoraMaster', join(directory, 'there/keys/amphora-master')]]))
  t.equal(statSync(join(directory, 'there/keys/amphora-master')).mode & 0o777, 0o600)
  t.same(readdirSync(join(directory, 'there/keys')), ['amphora-master'], 'what has no place is left out')

  await t.rejects(unpackBundle(join(directory, 'missing'), work), /There is no file/)
  writeFileSync(join(directory, 'text'), 'no tar')
  await t.rejects(unpackBundle(join(directory, 'text'), work), /is no bundle/)
  const odd = join(directory, 'odd')
  mkdirSync(odd)
  symlinkSync('/etc/passwd', join(odd, 'manifest.json'))
  execFileSync('tar', ['-C', odd, '-cf', join(directory, 'odd.tar'), 'manifest.json'])
  await t.rejects(unpackBundle(join(directory, 'odd.tar'), work), /is no bundle/, 'links lead nowhere')
})

t.test('each other host gets a copy of its own, and what cannot carry IPv4 is left out', async t => {
  const text = copyCommands({
    ...{ interfaceName: 'kr12345-mgmt', address: '10.9.0.1', port: 5555, from: '192.0.2.1' },
    to: ['192.0.2.2', 'fd00::3', '192.0.2.4'],
  })
  t.same(text.match(/dup to \S+/g), ['dup to 192.0.2.2', 'dup to 192.0.2.4'])
  t.match(
    text,
    /meta mark 0x6b720002 ip daddr 10\.9\.0\.1 udp dport 5555 ip daddr set 192\.0\.2\.4 ip saddr set 192\.0\.2\.1/,
  )
})
