import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { testDirectories } from './bundle-tests.js'
import { inTurn } from './test-turns.js'

/**
 * Runs test programs in parallel in the sandbox, each in its own process, and prints their output. They share a
 * PostgreSQL in KRATER_TEST_DIRECTORY. Anything they leave in the sandbox or below TMPDIR is a failure. Programs that
 * have not started by KRATER_TEST_DEADLINE (in seconds since 1970) are skipped.
 * Arguments: pairs of a file's name and its program.
 */

const LIMIT_SECONDS = Number(process.env.KRATER_TEST_LIMIT ?? 1200)
/** Processes that were told to end may need a moment. */
const GRACE_MS = 3_000
const DAY_MS = 86_400_000

const { KRATER_TEST_DEADLINE, KRATER_TEST_DIRECTORY: directory, TMPDIR: temporary } = process.env
/** After it no program starts: milliseconds since 1970; null without one. */
const deadline = KRATER_TEST_DEADLINE ? Number(KRATER_TEST_DEADLINE) * 1000 : null
const { startCluster } = await import('../dist/private-cluster.js')
const before = inventory()
const cluster = await startCluster({
  directory: join(directory, 'postgres'),
  durable: false,
  settings: { max_connections: '400' },
})

// Each file has a time limit, the whole run has none.
t.setTimeout(0)
const env = { ...process.env, TAP_TIMEOUT: String(LIMIT_SECONDS) }
const [, , ...words] = process.argv
const programs = []
for (let index = 0; index < words.length; index += 2) programs.push(words.slice(index, index + 2))
const isOfMachines = ([name]) => name.startsWith('test/machines/')
const usesEveryCore = ([name]) => /^test\/(end-to-end|long|machines)\//.test(name)
const ordered = list => (deadline === null ? list : inTurn(list, Math.floor(Date.now() / DAY_MS)))
const large = ordered(programs.filter(usesEveryCore))
const others = ordered(programs.filter(program => !usesEveryCore(program)))

// More than the two cores of a small machine, because many tests wait: for leases, restarts, health checks. An emulated
// machine does not wait.
t.jobs = programs.some(isOfMachines) ? 2 : 3
// Each of these can use every core, so two at once would exceed each other's time limits on a slow machine.
await Promise.all([runEach(large, others), ...Array.from({ length: t.jobs - 1 }, () => runEach(others, large))])
t.test('nothing is left behind', async t => {
  await cluster.stop()
  const left = () => inventory().filter(thing => !before.includes(thing))
  for (const end = performance.now() + GRACE_MS; left().length > 0 && performance.now() < end; ) await delay(50)
  for (const thing of left()) t.fail(thing, { diagnostic: false })
  t.pass('looked')
})

/** Runs one program after the other until both lists are empty; takes from the second once the first is empty. */
async function runEach(first, second) {
  for (let next = first.shift() ?? second.shift(); next !== undefined; next = first.shift() ?? second.shift()) {
    const [name, program] = next
    if (deadline !== null && Date.now() > deadline) {
      await t.test(name, { skip: 'no time is left' })
      continue
    }
    // Tap passes hooks to its children that serve only coverage and slow down every import.
    const node = ['-u', 'NODE_OPTIONS', process.execPath, '--enable-source-maps', program]
    await t.spawn('env', node, { name, buffered: true, timeout: LIMIT_SECONDS * 1000, env })
  }
}

/** Describes everything in the sandbox except this process. */
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

/** @returns an empty list when the process has exited */
function describeProcess(pid) {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim()
    return words === '' ? [] : [`process ${pid}: ${words.slice(0, 300)}`]
  } catch {
    return []
  }
}

/**
 * The control groups of amphorae. Skips mounts of the machine that are not visible here, and the groups of nested
 * sandboxes, which are removed with this one.
 */
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
