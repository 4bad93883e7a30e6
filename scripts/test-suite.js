import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { testDirectories } from './bundle-tests.js'

/**
 * Runs test programs side by side in the sandbox, each in a process of its own, and prints what all of them say. They share a PostgreSQL in
 * KRATER_TEST_DIRECTORY. Whatever they leave in the sandbox or below TMPDIR is a failure. Arguments: pairs of a file's name and its program.
 */

/** More than two cores have to do, for many tests wait: for leases, restarts, health checks. */
const JOBS = 3
const LIMIT_SECONDS = 600
/** What was told to end may take a moment. */
const GRACE_MS = 3_000

const { KRATER_TEST_DIRECTORY: directory, TMPDIR: temporary } = process.env
const { startCluster } = await import('../dist/private-cluster.js')
const before = inventory()
const cluster = await startCluster({
  directory: join(directory, 'postgres'),
  durable: false,
  settings: { max_connections: '400' },
})

t.jobs = JOBS
// Each file has its limit, the whole has none.
t.setTimeout(0)
const env = { ...process.env, TAP_TIMEOUT: String(LIMIT_SECONDS) }
const [, , ...words] = process.argv
const runs = []
for (let index = 0; index < words.length; index += 2) {
  const [name, program] = words.slice(index, index + 2)
  // The hooks that tap gives to what it starts serve its coverage only, and slow every import down.
  const node = ['-u', 'NODE_OPTIONS', process.execPath, '--enable-source-maps', program]
  runs.push(t.spawn('env', node, { name, buffered: true, timeout: LIMIT_SECONDS * 1000, env }))
}

await Promise.all(runs)
t.test('nothing is left behind', async t => {
  await cluster.stop()
  const left = () => inventory().filter(thing => !before.includes(thing))
  for (const end = performance.now() + GRACE_MS; left().length > 0 && performance.now() < end; ) await delay(50)
  for (const thing of left()) t.fail(thing, { diagnostic: false })
  t.pass('looked')
})

/** All that is in the sandbox apart from this process, in words. */
function inventory() {
  const processes = readdirSync('/proc').filter(
    name => /^\d+$/.test(name) && !['1', String(process.pid)].includes(name),
  )
  return [
    ...processes.flatMap(pid => describeProcess(pid)),
    ...readdirSync('/run/netns').map(name => `network namespace ${name}`),
    ...readdirSync('/sys/class/net').map(name => `network device ${name}`),
    ...linesOf('/proc/self/mounts').map(line => `mount ${line}`),
    ...controlGroups().map(path => `control group ${path}`),
    ...readdirSync(temporary).map(name => `temporary file ${name}`),
    ...testDirectories(directory).map(path => `test directory ${path}`),
  ]
}

/** @returns none when it has ended */
function describeProcess(pid) {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim()
    return words === '' ? [] : [`process ${pid}: ${words.slice(0, 300)}`]
  } catch {
    return []
  }
}

/** Those of amphorae. A mount of the machine that is out of sight here leads nowhere; the groups of sandboxes inside go with this one. */
function controlGroups() {
  const roots = linesOf('/proc/self/mounts')
    .map(line => line.split(' '))
    .filter(([, path, type]) => type?.startsWith('cgroup') && existsSync(path))
  return roots.flatMap(([, path]) =>
    readdirSync(path, { withFileTypes: true })
      .filter(entry => entry.isDirectory() && /^krater-(?!sandbox-)/.test(entry.name))
      .map(({ name }) => join(path, name)),
  )
}

function linesOf(path) {
  return readFileSync(path, 'utf8').split('\n').filter(Boolean)
}
