import {
  chmodSync,
  existsSync,
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
import { dirname, join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { parse } from 'yaml'
import { writeClientFiles } from '../../../controller/cli/first-start/client-files.js'
import { completeConfiguration } from '../../../controller/cli/first-start/complete-configuration.js'
import { freeCidr } from '../../../controller/cli/first-start/free-cidr.js'
import { passwordOf, serviceUrl, usesPrivateCluster } from '../../../controller/cli/state-directory/database-urls.js'
import { ensureInstanceId, ensureStateDirectory, instanceId } from '../../../controller/cli/state-directory/instance.js'
import {
  generateKeys,
  keyFiles,
  loadIdentityCredentialKey,
  loadKeys,
} from '../../../controller/cli/state-directory/keys.js'
import { PROCESS_NAMES } from '../../../controller/cli/state-directory/run-record.js'
import { serviceUrls } from '../../../controller/cli/wiring/service-urls.js'
import { loadConfiguration, parseConfiguration, stateDirectory } from '../../../controller/config/load.js'
import { settings } from '../../../controller/config/settings.js'
import { namedVariables, unknownVariables } from '../../../controller/config/unknown-variables.js'
import { ConfigurationError } from '../../../controller/options/configuration-error.js'
import { makePrivateFile, writePrivateFile } from '../../../controller/process/private-file.js'
import { anyText } from '../../support/inputs/any-text.js'

const modeOf = (path: string) => statSync(path).mode & 0o777

/** The errors of a configuration, one per line; '' if it is accepted. */
function refusal(text: string, environment: NodeJS.ProcessEnv = {}): string {
  try {
    parseConfiguration(text, environment, '/etc/krater.yaml')
    return ''
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error
    return error.message
  }
}

t.test('the environment overrides the file, and the file overrides the defaults', async t => {
  const text = 'network: {driver: noop, port: 1111}\n'
  t.match(parseConfiguration('', {}), { network: { driver: 'local', port: 9696 }, identity: { host: '127.0.0.1' } })
  t.match(parseConfiguration(text, {}), { network: { driver: 'noop', port: 1111 } })
  t.match(parseConfiguration(text, { KRATER_NETWORK_PORT: '2222' }), { network: { driver: 'noop', port: 2222 } })
  t.match(
    parseConfiguration(text, { KRATER_NETWORK_PORT: '' }),
    { network: { port: 1111 } },
    'an empty variable is ignored',
  )
})

t.test('every setting has its own environment variable, default and description', async t => {
  const variables = settings.map(setting => setting.variable)
  for (const name of [
    'KRATER_REGION',
    'KRATER_NETWORK_DRIVER',
    'KRATER_COMPUTE_DRIVER',
    'KRATER_DATABASE_LOAD_BALANCER',
  ]) {
    t.ok(variables.includes(name), name)
  }
  t.equal(new Set(variables).size, variables.length, 'no two settings share a variable')
  t.match(
    settings.find(({ name }) => name === 'load_balancer.reserved_ips'),
    {
      variable: 'KRATER_LOAD_BALANCER_RESERVED_IPS',
      default: ['169.254.169.254'],
      description: /^Addresses that members may not use/,
    },
    'a setting has a default and a description',
  )
})

t.test('a KRATER_ variable that is no setting is found, with the name that was probably meant', async t => {
  const known = { KRATER_STATE_DIR: '/x', KRATER_REGION: 'r', KRATER_UP_PROGRESS: '1', PATH: '/bin', OS_CLOUD: 'x' }
  t.same(unknownVariables(known), [])
  t.same(unknownVariables({ ...known, KRATER_NETWORK_DRIVR: 'x', KRATER_STATEDIR: '/y', KRATER_MOOD: 'good' }), [
    { name: 'KRATER_MOOD', nearest: null },
    { name: 'KRATER_NETWORK_DRIVR', nearest: 'KRATER_NETWORK_DRIVER' },
    { name: 'KRATER_STATEDIR', nearest: 'KRATER_STATE_DIR' },
  ])
  const ofKubernetes = {
    KRATER_SERVICE_HOST: '10.0.0.1',
    KRATER_PORT: 'tcp://10.0.0.1:80',
    KRATER_PORT_80_TCP_ADDR: '',
  }
  t.same(unknownVariables(ofKubernetes), [], 'what Kubernetes sets for a service named krater')
  t.same(unknownVariables({ KRATER_LOAD_BALANCER_STRICT_ROLES: 'true' }), [], 'a removed setting has its own message')
})

t.test('a variable that a setting names may begin with KRATER_', async t => {
  const directory = t.testdir({ 'krater.yaml': 'key_manager: {crypto: {simple: {master_key_variable: KRATER_KEY}}}' })
  t.same([...namedVariables(directory, {})], ['KRATER_KEY'])
  t.same(unknownVariables({ KRATER_KEY: 'x' }, namedVariables(directory, {})), [])
  t.same([...namedVariables(t.testdir({ 'krater.yaml': '[' }), {})], [], 'wrong settings are reported elsewhere')
})

t.test('an invalid setting is reported with its value, its source and what is allowed', async t => {
  t.equal(
    refusal('network: {driver: ovs}'),
    'network.driver: "ovs" (from /etc/krater.yaml) is not allowed: it must be local or ovn or noop.',
  )
  t.equal(
    refusal('', { KRATER_COMPUTE_DRIVER: 'vm' }),
    'compute.driver: "vm" (from KRATER_COMPUTE_DRIVER) is not allowed: it must be namespace or qemu or enrolled or noop.',
  )
  t.match(refusal('identity: {port: 70000}'), /identity\.port: "70000".*at most 65535/)
  t.match(refusal('identity: {port: eighty}'), /identity\.port: "eighty".*a number/)
  t.match(refusal('worker: {sweep_interval: 0}'), /worker\.sweep_interval: "0".*above 0/)
  t.match(refusal('identity: [1]'), /identity: .*a group of settings/)
  t.match(refusal('identity: {public_url: nowhere}'), /identity\.public_url: "nowhere".*a valid url/)
  for (const value of ['true', 'false']) {
    t.equal(
      refusal(`load_balancer: {strict_roles: ${value}}`),
      '/etc/krater.yaml: load_balancer.strict_roles no longer exists: remove it; if it was true, set load_balancer.policy (KRATER_LOAD_BALANCER_POLICY) to new.',
      'a removed setting names its successor',
    )
  }
  t.match(
    refusal('', { KRATER_LOAD_BALANCER_STRICT_ROLES: 'true' }),
    /^KRATER_LOAD_BALANCER_STRICT_ROLES no longer exists: .*load_balancer\.policy .*to new\.$/,
  )
  t.match(refusal('load_balancer: {policy: old}'), /it must be union or legacy or new\.$/)
  t.match(refusal('a: [1'), /\/etc\/krater\.yaml is not valid YAML: .*line 1/s)
  t.match(refusal('- 1'), /must hold settings/)
  t.match(refusal('region: *nothing'), /is not valid YAML: Unresolved alias/)
  t.equal(refusal('network: {driver: x}\nidentity: {port: y}').split('\n').length, 2, 'all errors are reported at once')
})

t.test('a database password is never shown', async t => {
  const text = refusal('database: {identity: "mysql://u:hunter2@host/db"}')
  t.match(text, /database\.identity: its value \(not shown\).*postgres:\/\/ URL/)
  t.notMatch(text, /hunter2/)
})

t.test('any file content is accepted or refused with a message', async () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json(), anyText()), text => typeof refusal(text) === 'string'),
    { numRuns: 300, examples: [['*!']] },
  )
})

t.test('the state directory is the flag, else the variable, else /var/lib/krater', async t => {
  t.equal(stateDirectory('/a', { KRATER_STATE_DIR: '/b' }), '/a')
  t.equal(stateDirectory(undefined, { KRATER_STATE_DIR: '/b/' }), '/b')
  t.equal(stateDirectory(undefined, {}), '/var/lib/krater')
})

t.test('an unusable state directory is refused with a reason', async t => {
  t.throws(
    () => ensureStateDirectory('/proc/version/below'),
    /Cannot write to .*: a part of the path is not a directory \(ENOTDIR\)\. Check the path\./,
  )
  t.throws(() => ensureStateDirectory(`/tmp/${'x'.repeat(80)}`), /more than 70 characters/)
  const foreign = t.testdir({ log: { syslog: 'lines' } })
  const short = join(mkdtempSync(join(tmpdir(), 'kr-')), 'state')
  t.teardown(() => rmSync(dirname(short), { recursive: true }))
  symlinkSync(foreign, short)
  t.throws(() => ensureStateDirectory(short), /is not Krater's: its folder "log" holds other files/)
  t.same(readdirSync(foreign), ['log'], 'the directory is left unchanged')
})

t.test('a state directory may hold the log and record of any process', async t => {
  const parent = mkdtempSync(join(tmpdir(), 'kr-'))
  t.teardown(() => rmSync(parent, { recursive: true }))
  for (const name of PROCESS_NAMES) {
    const directory = join(parent, name)
    for (const [folder, file] of [
      ['log', `${name}.log`],
      ['log', `${name}.log.1`],
      ['run', `${name}.17.json`],
    ] as const) {
      mkdirSync(join(directory, folder), { recursive: true })
      writeFileSync(join(directory, folder, file), '')
    }
    ensureStateDirectory(directory)
    t.match(instanceId(directory), /^[0-9a-f]{5}$/, name)
  }
})

t.test('an instance keeps its id and refuses a malformed one', async t => {
  const directory = t.testdir({})
  t.equal(instanceId(directory), null)
  const id = ensureInstanceId(directory)
  t.match(id, /^[0-9a-f]{5}$/)
  t.equal(ensureInstanceId(directory), id)
  writeFileSync(join(directory, 'instance'), '../../etc\n')
  t.throws(() => instanceId(directory), /must hold five hexadecimal digits/)
})

/** Completes krater.yaml, as a start in this environment does. @returns the settings, and the lines reported */
async function complete(directory: string, environment: NodeJS.ProcessEnv = {}) {
  const lines: string[] = []
  const { config, save } = await completeConfiguration(directory, 'abcde', environment)
  save(line => lines.push(line))
  return { config, lines }
}

t.test('a first start completes krater.yaml once', async t => {
  const directory = t.testdir({})
  const { config: first, lines } = await complete(directory)
  t.same(lines, [])
  const file = join(directory, 'krater.yaml')
  t.equal(modeOf(file), 0o600)
  t.match(first.network.cidr, /^10\.\d+\.0\.0\/16$/)
  t.ok(usesPrivateCluster(first, directory))
  t.not(passwordOf(first.database.identity!), passwordOf(first.database.network!))
  t.match(first.database.load_balancer, /^postgres:\/\/krater_load_balancer:[\w-]{32}@\/postgres\?host=/)
  const before = readFileSync(file, 'utf8')
  t.same((await complete(directory)).config, first)
  t.equal(readFileSync(file, 'utf8'), before)
  const example = before.replaceAll(/^# (?=load_balancer:| {2}port:|log_level:)/gm, '')
  t.match(parseConfiguration(example, {}), { load_balancer: { port: 9877 }, log_level: 'debug' })
})

t.test('a first start that fails before it saves leaves the choice of settings open', async t => {
  const directory = t.testdir({})
  const { config } = await completeConfiguration(directory, 'abcde', { KRATER_IDENTITY_PORT: '15000' })
  t.match(config, { identity: { port: 15000 }, network: { cidr: /^10\./ }, database: { identity: /^postgres:/ } })
  t.same(readdirSync(directory), [], 'nothing is written')
  t.match((await complete(directory, { KRATER_IDENTITY_PORT: '15001' })).lines, [/^Wrote KRATER_IDENTITY_PORT to /])
  t.equal((await complete(directory)).config.identity.port, 15001)
})

t.test('a first start keeps the operator’s settings and comments', async t => {
  const directory = t.testdir({
    'krater.yaml':
      '# mine\ndatabase:\n  url: postgres://root:pw@db.example:5433/lb?sslmode=require\nnetwork: {cidr: 10.7.0.0/16}\n',
  })
  const { config } = await complete(directory)
  t.notOk(usesPrivateCluster(config, directory))
  t.equal(config.network.cidr, '10.7.0.0/16')
  t.match(config.database.network, /^postgres:\/\/krater_network:[\w-]{32}@db\.example:5433\/lb\?sslmode=require$/)
  t.match(readFileSync(join(directory, 'krater.yaml'), 'utf8'), /^# mine/)
})

t.test('a first start writes the settings of its environment, so that later starts need no variables', async t => {
  const directory = t.testdir({ 'krater.yaml': '# mine\nnetwork: {driver: noop}\n' })
  const environment = {
    ...{ KRATER_IDENTITY_PORT: '15000', KRATER_LOAD_BALANCER_LOG_REQUESTS: 'yes', KRATER_COMPUTE_DRIVER: 'noop' },
    ...{ KRATER_LOAD_BALANCER_HOST_MEMBER_PORTS: '80,81', KRATER_NETWORK_DRIVER: 'local', KRATER_NETWORK_PORT: '9696' },
    ...{ KRATER_NETWORK_CIDR: '10.9.0.0/16', KRATER_IDENTITY_EXTERNAL_URL: 'http://k.example', KRATER_REGION: '' },
    ...{ KRATER_IDENTITY_USERNAME: 'krater', KRATER_IDENTITY_PASSWORD: 'hunter2' },
  }
  const { config, lines } = await complete(directory, environment)
  const text = readFileSync(join(directory, 'krater.yaml'), 'utf8')
  t.match(text, /^# mine/)
  t.match(parse(text), {
    identity: { port: 15000, external_url: 'http://k.example', username: 'krater', password: undefined },
    load_balancer: { log_requests: true, host_member_ports: [80, 81] },
    ...{ compute: { driver: 'noop' }, network: { driver: 'noop', cidr: '10.9.0.0/16', port: undefined } },
  })
  t.notMatch(text, 'hunter2')
  t.equal(config.network.driver, 'local', 'the variable wins for this start')
  t.match(lines, [
    /^Wrote KRATER_IDENTITY_PORT, .*KRATER_COMPUTE_DRIVER to /,
    /KRATER_IDENTITY_PASSWORD .*secret/,
    /"local" for this start/,
  ])
  t.notMatch(lines.join(), 'hunter2')
  const secret = { KRATER_IDENTITY_PASSWORD: 'hunter2' }
  const later = await complete(directory, secret)
  t.same(later.config, { ...config, network: { ...config.network, driver: 'noop' } })
  t.equal(later.lines.length, 1, 'only the secret is needed')
})

t.test('a later start with another variable uses it, says so, and leaves the file alone', async t => {
  const directory = t.testdir({})
  await complete(directory, { KRATER_IDENTITY_PORT: '15000' })
  const before = readFileSync(join(directory, 'krater.yaml'), 'utf8')
  const { config, lines } = await complete(directory, { KRATER_IDENTITY_PORT: '15001', KRATER_REGION: 'North' })
  t.match(config, { identity: { port: 15001 }, region: 'North' })
  const file = join(directory, 'krater.yaml')
  t.same(lines, [
    `KRATER_REGION sets region to "North" for this start only; without it: "RegionOne". To keep it, write it to ${file}`,
    `KRATER_IDENTITY_PORT sets identity.port to 15001 for this start only; without it: 15000. To keep it, write it to ${file}`,
  ])
  t.equal(readFileSync(file, 'utf8'), before)
  t.same((await complete(directory, { KRATER_IDENTITY_PORT: '15000' })).lines, [], 'the same value needs no line')
  t.equal((await complete(directory)).config.identity.port, 15000)
})

t.test('the ports that an earlier version ran with are written once', async t => {
  const ports = { KRATER_IDENTITY_PORT: '15000', KRATER_NETWORK_PORT: '15001' }
  const environment = { ...ports, KRATER_REGION: 'North' }
  const directory = t.testdir({ 'clouds.yaml': 'clouds: {krater: {}}' })
  const file = join(directory, 'krater.yaml')
  const writeEarlier = async () => {
    rmSync(file, { force: true })
    await complete(directory)
    const text = readFileSync(file, 'utf8')
    writeFileSync(file, text.replace(/ Those of the first start.*log_level: debug/s, ''))
  }
  await writeEarlier()
  t.match((await complete(directory, environment)).lines, Array(3).fill(/for this start only/), 'it ran elsewhere')
  const who = { username: 'u', password: 'p', projectName: 'p' }
  writeClientFiles(directory, {
    authUrl: 'http://127.0.0.1:15000/v3',
    caFile: null,
    region: 'R',
    demo: who,
    admin: who,
  })
  const { lines } = await complete(directory, environment)
  t.match(lines, [/^Wrote KRATER_IDENTITY_PORT, KRATER_NETWORK_PORT to /, /^KRATER_REGION .*for this start only/])
  t.match((await complete(directory)).config, { identity: { port: 15000 }, network: { port: 15001 } })
  const later = { ...ports, KRATER_KEY_MANAGER_PORT: '15003' }
  t.match((await complete(directory, later)).lines, [/^KRATER_KEY_MANAGER_PORT .*for this start only/])
  await writeEarlier()
  t.match((await complete(directory, { KRATER_IDENTITY_PORT: '15009' })).lines, [/for this start only/])
  rmSync(file)
  await complete(directory)
  t.match(
    (await complete(directory, ports)).lines,
    [/this start only/, /this start only/],
    'this version said so before',
  )
})

t.test('a group that the file gives by Barbican’s name is not written twice', async t => {
  const directory = t.testdir({ 'krater.yaml': 'key_manager: {quotas: {quota_secrets: 5}}\n' })
  const { config } = await complete(directory, { KRATER_KEY_MANAGER_QUOTA_ORDERS: '7' })
  t.match(config.key_manager.quota, { secrets: 5, orders: 7 })
  t.match((await complete(directory)).config.key_manager.quota, { secrets: 5 })
})

t.test('a service URL keeps server and database, and replaces user and password', async t => {
  t.equal(serviceUrl('postgres://postgres@/postgres?host=%2Fs', 'r', 'p'), 'postgres://r:p@/postgres?host=%2Fs')
  t.equal(serviceUrl('postgresql:///db?host=%2Fs', 'r', 'p'), 'postgresql://r:p@/db?host=%2Fs')
  t.equal(passwordOf(serviceUrl('postgres://a:b@h/d', 'r', 'p@/:w')), 'p@/:w')
})

t.test('the chosen network overlaps no route', async t => {
  t.equal(freeCidr(0, []), '10.64.0.0/16')
  t.equal(freeCidr(0, ['10.64.3.0/24', '10.65.1.1', 'default', '10.66.0.0/15']), '10.68.0.0/16')
  t.equal(freeCidr(190, ['10.254.0.1']), '10.64.0.0/16', 'the search wraps around')
  t.throws(() => freeCidr(0, ['10.0.0.0/8']), /network\.cidr/)
})

t.test('keys are generated once and readable by root alone', async t => {
  const directory = t.testdir({})
  const files = keyFiles(parseConfiguration('', {}), directory)
  await generateKeys(files)
  const keys = await loadKeys(files)
  t.equal(loadIdentityCredentialKey(files).length, 32)
  t.equal(keys.amphoraMaster.length, 32)
  t.match(keys.controllerSsh.privateKey, /^-----BEGIN OPENSSH PRIVATE KEY-----/)
  t.match(keys.operatorSsh.publicLine, /^ssh-ed25519 \S+ krater-operator$/)
  t.equal(modeOf(join(directory, 'keys')), 0o700)
  for (const path of Object.values(files)) if (path !== null) t.equal(modeOf(path), 0o600, path)
  t.same(readdirSync(join(directory, 'keys')).sort(), [
    'amphora-master',
    'controller-ssh',
    'controller-ssh.pub',
    'identity-credentials',
    'key-channel',
    'key-channel.crt',
    'key-channel.key',
    'key-manager-audit',
    'key-manager-master',
    'operator-ssh',
    'operator-ssh.pub',
  ])
  await generateKeys(files)
  t.same(await loadKeys(files), keys)
})

t.test('a missing or broken key is named with its setting', async t => {
  const directory = t.testdir({})
  const files = keyFiles(parseConfiguration('keys: {amphora_master: /nowhere/master}', {}), directory)
  await t.rejects(loadKeys(files), /\/nowhere\/master \(keys\.amphora_master\) cannot be read \(ENOENT\)/)
  const own = keyFiles(parseConfiguration('', {}), directory)
  await generateKeys(own)
  writeFileSync(own.controllerSsh, 'nonsense')
  chmodSync(own.controllerSsh, 0o600)
  await t.rejects(loadKeys(own), /controller-ssh \(keys\.controller_ssh\) must be an SSH private key/)
  writeFileSync(own.amphoraMaster, 'short')
  await t.rejects(loadKeys(own), /64 hexadecimal digits/)
})

t.test('client files default to the demo user and are readable by root alone', async t => {
  const directory = t.testdir({})
  const who = (name: string) => ({ username: name, password: `it's ${name}`, projectName: name })
  writeClientFiles(directory, {
    authUrl: 'http://127.0.0.1:5000/v3',
    caFile: null,
    region: 'R',
    demo: who('demo'),
    admin: who('admin'),
  })
  for (const name of ['openrc', 'admin-openrc', 'clouds.yaml']) t.equal(modeOf(join(directory, name)), 0o600, name)
  const { clouds } = parse(readFileSync(join(directory, 'clouds.yaml'), 'utf8'))
  t.same(Object.keys(clouds), ['krater', 'krater-admin'])
  t.match(clouds.krater, { auth: { username: 'demo', password: "it's demo" }, region_name: 'R' })
  t.match(readFileSync(join(directory, 'openrc'), 'utf8'), "export OS_PASSWORD='it'\\''s demo'")
  t.match(readFileSync(join(directory, 'admin-openrc'), 'utf8'), "export OS_USERNAME='admin'")
})

t.test('writing a private file replaces it, readable by root alone; a failed write leaves nothing behind', async t => {
  const directory = t.testdir({ file: 'old' })
  const path = join(directory, 'file')
  chmodSync(path, 0o644)
  writePrivateFile(path, 'new')
  t.equal(readFileSync(path, 'utf8'), 'new')
  t.equal(modeOf(path), 0o600)
  mkdirSync(join(directory, 'taken'))
  t.throws(() => writePrivateFile(join(directory, 'taken'), 'x'))
  t.equal(existsSync(join(directory, 'taken')), true)
  t.same(readdirSync(directory).sort(), ['file', 'taken'], 'no other file remains')
})

t.test('creating a private file keeps an existing one', async t => {
  const directory = t.testdir()
  const path = join(directory, 'below/file')
  makePrivateFile(path, 'first')
  makePrivateFile(path, 'second')
  t.equal(readFileSync(path, 'utf8'), 'first')
  t.equal(modeOf(path), 0o600)
  t.same(readdirSync(dirname(path)), ['file'])
})

t.test('a service URL is the address that clients use', async t => {
  const config = parseConfiguration(
    'identity: {host: 0.0.0.0}\nnetwork: {host: "::1", port: 1}\nload_balancer: {public_url: "https://lb.example"}',
    {},
  )
  t.same(serviceUrls(config), {
    identity: 'http://127.0.0.1:5000/v3',
    network: 'http://[::1]:1',
    loadBalancer: 'https://lb.example',
    keyManager: 'http://127.0.0.1:9311',
  })
  t.type(loadConfiguration('/nowhere', {}), 'object', 'a missing file is like an empty one')
})
