import t, { type Test } from 'tap'
import { commands, type Entry } from '../../controller/cli/commands.js'
import {
  AMPHORA,
  createFaultyKrater,
  type Ended,
  FAULTS,
  type Fault,
  type FaultyKrater,
} from '../support/worlds/faulty-krater.js'

/** Every command meets every ordinary fault. Those that do not concern it are applied together: it works as before. */
type Row = {
  args?: readonly string[]
  environment?: Readonly<Record<string, string>>
  /** What it says when nothing that concerns it is wrong; null: another test shows it. */
  well: { status: number; says: RegExp } | null
  /** A process: what it prints once it works, until Ctrl-C ends it. */
  ready?: RegExp
  /** It writes keys or files when nothing is wrong, as is its purpose. */
  changes?: true
  /** The faults that concern it; `true`: it says the usual sentence. */
  faults: Partial<Record<Fault, true | RegExp>>
}

/** What each fault makes a command say: the reason and the way out. */
const SENTENCES: Readonly<Record<Fault, RegExp>> = {
  'no database':
    /^The database postgres:\/\/k@127\.0\.0\.1:\d+\/krater cannot be used: nothing listens there \(ECONNREFUSED\)\. Start PostgreSQL there, or correct database\.url/,
  'silent database': /^Interrupted\. Run the same command again to finish\.$/,
  'half-made directory':
    /^The database \S+ cannot be used: it refuses the role or its password\. Run `krater up` or `krater db migrate`/,
  'wrong master key': /^The master key is wrong: .* needs? the active master key .* Put it back there/,
  'missing keys': /keys\/\S+ .*(cannot be read|is missing).* (copy them|Copy it back) from a backup/,
  'port taken': /127\.0\.0\.1.* (is taken by|another program has it).*Free it \(ss -l/,
  'full disk': /(the disk is full \(ENOSPC\)|has only 0 MiB free).* Free some space/,
  'read-only disk': /the file system is read-only \(EROFS\)\. Make it writable \(mount -o remount,rw/,
  'another user':
    /(needs root.* Run it with sudo\.|permission denied \(EACCES\)\. Run the command as root \(with sudo\).*)$/,
}

const LATE = /does not answer in time\. Start PostgreSQL there/
type Faults = Row['faults']
const DATABASE: Faults = {
  'no database': true,
  'silent database': true,
  'half-made directory': true,
  'another user': true,
}
const PROCESS: Faults = { ...DATABASE, 'silent database': LATE, 'full disk': true, 'read-only disk': true }
const CONFIGURATION: Faults = { 'another user': true }
const START: Faults = {
  ...{ 'no database': true, 'half-made directory': true, 'wrong master key': true, 'missing keys': true },
  ...{ 'port taken': true, 'full disk': true, 'read-only disk': true, 'another user': true },
}
const ROOT: Faults = { 'another user': true }
const NO_CA = /^There is no certificate authority a0000000-\S+\. `krater key-manager ca list` lists all\.$/
const NO_TOKEN = /^key_manager\.crypto\.pkcs11\.library_path is not set\. /
const NO_ATTACHMENT = /^There is no attachment "web-1"\. `krater network list` shows all\.$/
const NO_OVN =
  /^network\.driver is noop: Krater has no networks in OVN\. A new installation has them with `network\.driver: ovn`\.$/
const NO_HOST_PORT = /^Load balancers reach no port of this host\. /
const NO_API = /^POST \S+ got no answer \(ECONNREFUSED\)\. `krater up --detach` starts the APIs/
const LOCAL = { KRATER_NETWORK_DRIVER: 'local', KRATER_COMPUTE_DRIVER: 'namespace' }
const found = (text: string) => new RegExp(`${text}[^]*what to do: [^]*faults? found\\.`)

/** A tenant's command, which only asks APIs. */
const CLIENT: Row = {
  well: { status: 1, says: NO_API },
  faults: { 'half-made directory': /^No credentials: .* or start Krater/, 'another user': true },
}

const ROWS: Readonly<Record<string, Row>> = {
  up: {
    ready: /Krater is up/,
    changes: true,
    well: { status: 0, says: /Stopped\./ },
    faults: { ...START, 'silent database': LATE },
  },
  down: { well: { status: 0, says: /Nothing was running/ }, faults: ROOT },
  demo: {
    environment: LOCAL,
    well: null,
    faults: {
      ...START,
      'silent database': /^Interrupted\. `krater up` continues in the background; `krater down` stops it\.$/,
    },
  },
  doctor: {
    well: { status: 0, says: /No faults found/ },
    faults: {
      ...{ 'no database': found('nothing listens there'), 'half-made directory': found('refuses the role') },
      ...{
        'wrong master key': found('The master key is wrong'),
        'missing keys': found('key-manager-master is missing'),
      },
      ...{ 'port taken': found('is taken by'), 'full disk': found('0 MiB free'), 'another user': true },
      ...{
        'read-only disk': found('read-only file system\\n +what to do: mount -o remount,rw \\S+ '),
        'silent database': true,
      },
    },
  },
  explain: { ...CLIENT, args: ['web'] },
  status: { well: { status: 0, says: /^host +state +version/ }, faults: DATABASE },
  'controller add': {
    args: ['b', '192.0.2.2', '--output', '/dev/null'],
    well: { status: 1, says: /^Other machines do not reach the database at \S+\. Name its server there/ },
    faults: { 'half-made directory': /is no controller host yet\. Run `krater up`/, 'another user': true },
  },
  'controller remove': {
    args: ['b'],
    well: { status: 1, says: /^There is no controller host b\. `krater controller list` lists all\.$/ },
    faults: DATABASE,
  },
  'controller list': { well: { status: 0, says: /^host +state +version/ }, faults: DATABASE },
  settings: { well: { status: 0, says: /KRATER_NETWORK_DRIVER/ }, faults: {} },
  api: {
    args: ['--only', 'key-manager'],
    ready: /key-manager-api is ready/,
    well: { status: 0, says: /is stopping/ },
    faults: {
      ...{ ...PROCESS, 'half-made directory': /keys\/key-manager-master/, 'wrong master key': true },
      ...{ 'missing keys': true, 'port taken': true },
    },
  },
  worker: {
    ready: /worker is ready/,
    well: { status: 0, says: /is stopping/ },
    faults: { ...PROCESS, 'half-made directory': /keys\/amphora-master/, 'missing keys': true },
  },
  'health-manager': {
    ready: /health-manager is ready/,
    well: { status: 0, says: /is stopping/ },
    faults: { ...PROCESS, 'half-made directory': /keys\/amphora-master/, 'missing keys': true, 'port taken': true },
  },
  'keystone-listener': {
    well: { status: 1, says: /^key_manager\.keystone_notifications\.enable is false .* set enable to true/ },
    faults: CONFIGURATION,
  },
  'key-manager worker': {
    ready: /key-manager-worker is ready/,
    changes: true,
    well: { status: 0, says: /is stopping/ },
    faults: {
      ...PROCESS,
      'half-made directory': /keys\/key-manager-master/,
      'wrong master key': true,
      'missing keys': true,
    },
  },
  'key-manager acme-validator': {
    ready: /acme-validator is ready/,
    well: { status: 0, says: /is stopping/ },
    faults: PROCESS,
  },
  'key-manager sync-projects': { well: { status: 0, says: /Nothing to erase|no longer has/ }, faults: DATABASE },
  'key-manager clean': { well: { status: 0, says: /Purged objects/ }, faults: DATABASE },
  'key-manager audit verify': {
    well: { status: 0, says: /records are unchanged/ },
    faults: { ...DATABASE, 'half-made directory': /keys\/key-manager-audit/, 'missing keys': true },
  },
  'key-manager audit accept': {
    changes: true,
    well: { status: 0, says: /Accepted the chain/ },
    faults: {
      ...{ ...DATABASE, 'half-made directory': /keys\/key-manager-audit/, 'missing keys': true },
      ...{ 'full disk': true, 'read-only disk': true },
    },
  },
  'key-manager audit export': { well: { status: 0, says: /^(\{.*\}\n)*$/ }, faults: DATABASE },
  'key-manager rotate-master-key': {
    args: ['--prepare'],
    changes: true,
    well: { status: 0, says: /new master key and the former one/ },
    faults: {
      ...{ ...DATABASE, 'half-made directory': true, 'wrong master key': true, 'missing keys': true },
      ...{ 'full disk': true, 'read-only disk': true },
    },
  },
  'key-manager rotate-project-keys': {
    args: ['--all'],
    well: { status: 0, says: /^Replaced/m },
    faults: {
      ...DATABASE,
      'half-made directory': /keys\/key-manager-master/,
      'wrong master key': true,
      'missing keys': true,
    },
  },
  'key-manager ca list': { well: { status: 0, says: /^id +project/ }, faults: DATABASE },
  'key-manager ca certificates': { args: [AMPHORA], well: { status: 1, says: NO_CA }, faults: DATABASE },
  'key-manager ca revoke': { args: [AMPHORA, 'ff'], well: { status: 1, says: NO_CA }, faults: DATABASE },
  'key-manager hsm create-master-key': { well: { status: 1, says: NO_TOKEN }, faults: CONFIGURATION },
  'key-manager hsm check': { well: { status: 1, says: NO_TOKEN }, faults: CONFIGURATION },
  'certificates acme-account create': CLIENT,
  'certificates acme-account list': CLIENT,
  'certificates list': CLIENT,
  'certificates order': { ...CLIENT, args: ['a.example.org'] },
  'certificates renew': { ...CLIENT, args: [AMPHORA] },
  'certificates rollback': { ...CLIENT, args: [AMPHORA] },
  'certificates acme-account revoke': { ...CLIENT, args: [AMPHORA] },
  'db migrate': {
    changes: true,
    well: { status: 0, says: /All tables are up to date/ },
    faults: {
      ...{ ...DATABASE, 'missing keys': true, 'full disk': true, 'read-only disk': true },
    },
  },
  'network worker': {
    environment: LOCAL,
    ready: /network-worker is ready/,
    well: { status: 0, says: /is stopping/ },
    faults: PROCESS,
  },
  'network attach': {
    args: ['private', 'web-1'],
    environment: LOCAL,
    well: { status: 1, says: NO_API },
    faults: { 'half-made directory': /clouds\.yaml is missing.* `krater up --detach` writes it/, ...ROOT },
  },
  'network exec': { args: ['web-1', 'true'], well: { status: 1, says: NO_ATTACHMENT }, faults: ROOT },
  'network address': { args: ['web-1'], well: { status: 1, says: NO_ATTACHMENT }, faults: ROOT },
  'network list': { well: { status: 0, says: /Nothing is attached/ }, faults: ROOT },
  'network detach': { args: ['web-1'], well: { status: 1, says: NO_ATTACHMENT }, faults: ROOT },
  'network open': { environment: LOCAL, well: { status: 0, says: NO_HOST_PORT }, faults: ROOT },
  'network close': { args: ['8081'], environment: LOCAL, well: { status: 0, says: NO_HOST_PORT }, faults: ROOT },
  'ovn check': { well: { status: 1, says: NO_OVN }, faults: ROOT },
  'ovn sync': { well: { status: 1, says: NO_OVN }, faults: ROOT },
  'amphora list': { well: { status: 0, says: new RegExp(AMPHORA) }, faults: DATABASE },
  'amphora show': { args: [AMPHORA], well: { status: 0, says: new RegExp(AMPHORA) }, faults: DATABASE },
  'amphora ssh': {
    args: [AMPHORA, 'true'],
    well: { status: 255, says: /Connection refused/ },
    faults: { ...DATABASE, 'missing keys': true, 'full disk': true, 'read-only disk': true },
  },
  'amphora logs': {
    args: [AMPHORA],
    well: { status: 1, says: /^The agent of the amphora \S+ gave no answer: .* `krater amphora show/ },
    faults: { ...DATABASE, 'missing keys': true },
  },
  'amphora upgrade': {
    environment: LOCAL,
    well: { status: 0, says: /^The agent is [0-9a-f]{8}\. 0 to upgrade/m },
    faults: DATABASE,
  },
  'amphora enroll': {
    args: ['root@127.0.0.1:1', '--yes'],
    well: { status: 1, says: /^127\.0\.0\.1 has no SSH server on port 1 that can be used: / },
    faults: DATABASE,
  },
  'amphora hosts': { well: { status: 0, says: /^No host is enrolled/ }, faults: DATABASE },
  'amphora retire': {
    args: ['b'],
    well: { status: 1, says: /^No host b is enrolled\. `krater amphora hosts` lists all\.$/ },
    faults: DATABASE,
  },
  'image import': {
    args: ['/nonexistent'],
    well: { status: 1, says: /^There is no image in \/nonexistent: / },
    faults: ROOT,
  },
  'image list': { well: { status: 0, says: /^There are no images/ }, faults: {} },
  'image remove': { args: ['b'], well: { status: 1, says: /^There is no image b\. / }, faults: DATABASE },
  'amphora support-bundle': {
    args: [AMPHORA, '--output', '/dev/null'],
    well: { status: 0, says: /^\/dev\/null\n$/ },
    faults: { ...DATABASE, 'full disk': true, 'read-only disk': true, 'missing keys': true },
  },
}

const leaves = (entries: readonly Entry[]): string[] =>
  entries.flatMap(entry =>
    'commands' in entry ? leaves(entry.commands).map(name => `${entry.name} ${name}`) : [entry.name],
  )

t.test('each command has a row', async t => t.same(Object.keys(ROWS).sort(), leaves(commands).sort()))

/** A command, the faults that it meets together, and how it must end. */
type Meeting = {
  command: string
  row: Row
  faults: readonly Fault[]
  isConcerned: boolean
  status: number
  says: RegExp
}

const INTERRUPTED = 130
/** More than processors, because some commands wait for a time limit. */
const AT_A_TIME = 4

t.test('a set-up Krater', async t => {
  t.setTimeout(600_000)
  const krater = await createFaultyKrater(t)
  await t.test('each command meets each fault', t => meetAll(t, krater))
  await t.test('the doctor says why other machines do not reach the VIPs', t => findClosedNetwork(t, krater))
})

async function meetAll(t: Test, krater: FaultyKrater): Promise<void> {
  t.setTimeout(600_000)
  // Some commands lock the database against themselves, so each meets one fault after another.
  const left = Object.entries(ROWS)
  const work = async () => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const [command, row] = next
      const met: { title: string; problems: string[] }[] = []
      for (const meeting of meetingsOf(command, row)) {
        const title = `${meeting.isConcerned ? '' : 'works in spite of: '}${meeting.faults.join(', ')}`
        met.push({ title, problems: await meet(krater, meeting) })
      }
      await t.test(`krater ${command}`, async t => {
        for (const { title, problems } of met) t.same(problems, [], title)
      })
    }
  }
  await Promise.all(Array.from({ length: AT_A_TIME }, work))
}

/** One with each fault that concerns the command, and one with all others together. */
function meetingsOf(command: string, row: Row): Meeting[] {
  const failing = FAULTS.flatMap((fault): Meeting[] => {
    const expected = row.faults[fault]
    if (expected === undefined) return []
    const status = fault === 'silent database' && expected !== LATE ? INTERRUPTED : 1
    const says = expected === true ? SENTENCES[fault] : expected
    return [{ command, row, faults: [fault], isConcerned: true, status, says }]
  })
  if (row.well === null) return failing
  const faults = FAULTS.filter(fault => row.faults[fault] === undefined)
  return [...failing, { command, row, faults, isConcerned: false, ...row.well }]
}

/** @returns what is wrong with the way in which the command ended */
async function meet(krater: FaultyKrater, meeting: Meeting): Promise<string[]> {
  const { command, row, faults, isConcerned } = meeting
  const cell = await krater.cell(faults)
  Object.assign(cell.environment, row.environment)
  const before = krater.digest(cell)
  try {
    const ended = await krater.run(cell, [...command.split(' '), ...(row.args ?? [])], row.ready ?? null)
    // An interrupted demo leaves `krater up` in the background.
    if (command === 'demo' && ended.status === INTERRUPTED) await krater.run(cell, ['down'], null)
    const mayChange = row.changes === true && !isConcerned
    const changes = krater.digest(cell) === before || mayChange ? [] : ['changes files']
    return [...problemsOf(meeting, ended), ...changes]
  } finally {
    await krater.remove(cell)
  }
}

function problemsOf({ command, isConcerned, status, says }: Meeting, ended: Ended): string[] {
  const sentence = ended.stderr.trim()
  // Of two taken ports each has a line.
  const lines = sentence.split('\n').filter((line, at) => at === 0 || !says.test(line))
  const isPrinted = (!isConcerned || command === 'doctor') && says.test(ended.stdout)
  return [
    ...(ended.status === status ? [] : [`ends with status ${ended.status}`]),
    ...(isPrinted || says.test(sentence) ? [] : [`says: ${ended.stdout}${ended.stderr}`]),
    ...(lines.length > 1 ? [`says more than one line: ${sentence}`] : []),
    ...(/^ +at |Error:|\{$/m.test(sentence) ? [`shows a stack: ${sentence}`] : []),
  ]
}

async function findClosedNetwork(t: Test, krater: FaultyKrater): Promise<void> {
  const cell = await krater.cell([])
  cell.environment.KRATER_NETWORK_DRIVER = 'local'
  cell.prefix.push(...IN_A_CLOSED_NETWORK)
  const { status, stdout, stderr } = await krater.run(cell, ['doctor'], null)
  await krater.remove(cell)
  t.equal(stderr, '')
  t.match(
    stdout,
    /other machines cannot reach the VIPs in 10\.99\.16\.0\/20 and \S+: this machine forwards neither IPv4 nor IPv6, and the/,
  )
  t.match(
    stdout,
    /firewall drops forwarded packets \(ip filter FORWARD\)\n {4}what to do: sysctl -w net\.ipv4\.ip_forward=1\n +sysctl -w net\.ipv6\.conf\.all\.forwarding=1\n/,
  )
  t.match(
    stdout,
    /iptables -I FORWARD -i \S+ -j ACCEPT\n.*-o \S+ -j ACCEPT\n.*ip route add 10\.99\.16\.0\/20 via THE-ADDRESS/,
  )
  t.equal(status, 0, stdout)
}

/** A namespace whose kernel forwards nothing, and whose firewall would drop it. */
const IN_A_CLOSED_NETWORK = [
  ...['unshare', '--net', 'sh', '-ec'],
  `ip link set lo up
   echo 0 > /proc/sys/net/ipv4/ip_forward
   nft 'add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'
   exec "$@"`,
  'sh',
]
