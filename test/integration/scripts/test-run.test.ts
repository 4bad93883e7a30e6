import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { findProcesses } from '../../../controller/process/process-identity.js'
import { until } from '../../support/worlds/krater.js'

const root = join(import.meta.dirname, '../../..')

/**
 * Creates one thing of each kind that can be left behind, far from its own process. The sleep identifies the
 * run.
 */
const MAKES_THINGS = `
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
t.testdir({ file: '' })
mkdtempSync(join(tmpdir(), 'left-'))
execFileSync('ip', ['netns', 'add', 'left'])
execFileSync('ip', ['link', 'add', 'left0', 'type', 'veth', 'peer', 'name', 'left1'])
t.equal(process.env.KRATER_LOG_LEVEL, undefined, 'settings of the caller’s Krater are none of the tests')
spawn('setsid', ['--fork', 'sleep', process.env.SLEEP], { detached: true, stdio: 'ignore' })
`
const HANGS = 'await new Promise(resolve => setTimeout(resolve, 600_000))'

/** A checkout with only these tests, and a directory for temporary files. */
function createCheckout(t: Test, tests: Readonly<Record<string, string>>) {
  const directory = mkdtempSync(join(tmpdir(), 'tr-'))
  // The postgres account needs to pass through.
  chmodSync(directory, 0o755)
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const checkout = join(directory, 'checkout')
  const temporary = join(directory, 'tmp')
  for (const made of [temporary, join(checkout, 'test/support')]) mkdirSync(made, { recursive: true })
  cpSync(join(root, 'scripts'), join(checkout, 'scripts'), { recursive: true, preserveTimestamps: true })
  const same = ['node_modules', 'dist', 'controller', 'amphora-agent', 'package.json', 'package-lock.json']
  for (const name of [...same, 'test/support/canary.ts']) symlinkSync(join(root, name), join(checkout, name))
  for (const [name, words] of Object.entries(tests)) writeFileSync(join(checkout, 'test', name), words)
  const fixtures = join(checkout, '.tap/fixtures')
  return {
    start: (test: string, settings: Readonly<Record<string, string>> = {}) => {
      const sleep = `9${randomInt(1e9)}`
      const child = spawn(process.execPath, [join(checkout, 'scripts/test.js'), `test/${test}`], {
        cwd: checkout,
        env: { ...outsideOfTests(), TMPDIR: temporary, SLEEP: sleep, KRATER_LOG_LEVEL: 'trace', ...settings },
        stdio: ['ignore', 'pipe', 'inherit'],
        detached: true,
      })
      t.teardown(() => child.kill('SIGKILL'))
      return { child, output: text(child.stdout), sleeps: () => sleeps(sleep) }
    },
    files: () => [...readdirSync(temporary), ...(existsSync(fixtures) ? readdirSync(fixtures) : [])],
  }
}

/** The environment without the variables that tell tap that it runs within tap. */
const outsideOfTests = (): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(NODE_OPTIONS|_?TAP.*)$/.test(name)))

const sleeps = (seconds: string) =>
  findProcesses(([program, argument]) => program === 'sleep' && argument === seconds).length > 0
const ended = (child: ChildProcess) => once(child, 'exit').then(([code, signal]) => code ?? signal)

t.test('a run of the tests', async t => {
  const checkout = createCheckout(t, { 'leaves.test.ts': MAKES_THINGS, 'hangs.test.ts': MAKES_THINGS + HANGS })
  // What has time runs as without a deadline.
  const leaves = checkout.start('leaves.test.ts', { KRATER_TEST_DEADLINE: String(Date.now() / 1000 + 3600) })
  const left = ended(leaves.child)
  const interrupted = [
    { signal: 'SIGTERM', status: 143, group: false, run: checkout.start('hangs.test.ts') },
    { signal: 'SIGINT', status: 130, group: true, run: checkout.start('hangs.test.ts') },
  ] as const
  for (const { signal, status, group, run } of interrupted) {
    t.test(`interrupted by ${signal} removes what the tests created`, async t => {
      await until('the test hangs', run.sleeps)
      const end = ended(run.child)
      process.kill(group ? -run.child.pid! : run.child.pid!, signal)
      t.equal(await end, status)
      t.notOk(run.sleeps())
      t.match(await run.output, /Interrupted; removing the files of the tests/)
      t.match(await run.output, /Interrupted: \d passed, 0 failed so far/)
    })
  }
  t.test('fails for what a test left behind, and removes it', async t => {
    t.equal(await left, 1)
    t.notOk(leaves.sleeps())
    const said = await leaves.output
    for (const thing of [
      /process \d+: sleep/,
      /network namespace left/,
      /network device left0/,
      /temporary file left-/,
    ])
      t.match(said, thing)
    t.match(said, /nothing is left behind/)
    t.match(said, /\n3 passed, 6 failed\n$/)
  })
  t.test('skips what does not start in time, and names it', async t => {
    const { child, output } = checkout.start('leaves.test.ts', { KRATER_TEST_DEADLINE: '1' })
    t.equal(await ended(child), 0)
    const said = await output
    t.match(said, /ok {6}test\/leaves\.test\.ts # SKIP no time is left/)
    t.match(said, /, 1 skip; the full log/)
    t.match(said, /\n2 passed, 0 failed\n$/)
  })
  t.test('leaves no files, however it ends', async t => t.same(checkout.files(), []))
})

/** The arguments of a Node.js program that runs a shell command in a sandbox. */
const inSandbox = (command: string) => [
  process.execPath,
  '--input-type=module',
  '--eval',
  `import { runScript } from '${join(root, 'scripts/progress.js')}'
  import { runInSandbox } from '${join(root, 'scripts/sandbox.js')}'
  const { signal } = new AbortController()
  await runScript(() => runInSandbox(['sh', '-c', '${command}'], { signal, stdio: 'inherit' }))`,
]

t.test('without permission for a sandbox, a message says so', async t => {
  const without = ['--bounding-set', '-sys_admin', ...inSandbox('echo runs')]
  const child = spawn('setpriv', without, { stdio: ['ignore', 'pipe', 'pipe'] })
  const [said, complained, status] = await Promise.all([text(child.stdout), text(child.stderr), ended(child)])
  t.same([said, status], ['', 1])
  t.match(complained, /^\nCannot create the sandbox: unshare: .*not permitted\n.*--privileged\.\n$/)
})

t.test('processes in a sandbox end when their caller is killed', async t => {
  const seconds = `9${randomInt(1e9)}`
  const [node = '', ...words] = inSandbox(`setsid --fork sleep ${seconds}; sleep ${seconds}`)
  const caller = spawn(node, words, { stdio: 'inherit' })
  t.teardown(() => caller.kill('SIGKILL'))
  await until('the process sleeps', () => sleeps(seconds))
  caller.kill('SIGKILL')
  await until('the process has ended', () => !sleeps(seconds))
})
