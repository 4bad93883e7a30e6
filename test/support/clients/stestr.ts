import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { clientPython } from './openstack-session.js'

const program = join(dirname(fileURLToPath(import.meta.url)), 'stestr-results.py')

/** Where Debian's packages put their Python modules. */
const PACKAGES = '/usr/lib/python3/dist-packages'

/** Names of upstream tests, each with a reason. A name is the end of a test's name, or part of it: a class, a module. */
export type Reasons = Readonly<Record<string, string>>

export type Suite = {
  /** The folder of the upstream tests below Debian's packages, such as `octavia_tempest_plugin/tests/api`. */
  tests: string
  /** A regular expression that selects some of them. */
  select?: string
  /** Modules that one process runs, one after another: each removes objects with the names that the others use. */
  together?: readonly string[]
  /** Tests that are not run, by regular expressions. */
  excluded?: Reasons
  /** Tests that skip themselves, each with a part of the reason that it gives. */
  skipped?: Reasons
  /** Tests that fail, and why Krater is right. */
  failing?: Reasons
  /** The longest sleep of the suite's programs, in seconds, where what they wait for is there at once. */
  maxSleep?: number
  /** How many pass at least: a suite that finds no tests must not pass. */
  passing: number
}

export type Result = { test: string; status: string; details: string }

/** A directory of one run, which is removed after the test. */
export function suiteDirectory(t: Test): string {
  const directory = mkdtempSync(join(tmpdir(), 'suite-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}

/**
 * Runs an upstream suite and makes one assertion of each of its tests: it passes unless it is named as skipped or
 * failing. A name without such a test fails too.
 * @returns what each test said
 */
export async function runSuite(
  t: Test,
  directory: string,
  suite: Suite,
  environment: NodeJS.ProcessEnv,
  timeout = 1_000_000,
): Promise<Result[]> {
  t.setTimeout(timeout + 60_000)
  const { tests, select, together = [], excluded = {}, passing } = suite
  // The tests of a class share what its setUpClass made, so one process runs them all.
  const groups = `.*\\.(?=(${together.join('|')})\\.)|([^\\.]*\\.)*`
  const config = `[DEFAULT]\ntest_path=${PACKAGES}/${tests}\ntop_dir=${PACKAGES}\ngroup_regex=${groups}\n`
  writeFileSync(join(directory, '.stestr.conf'), config)
  const without = Object.keys(excluded).join('|')
  const args = [
    ...['--concurrency', '2'],
    ...(without === '' ? [] : ['--exclude-regex', without]),
    ...(select === undefined ? [] : [select]),
  ]
  const shortened = suite.maxSleep === undefined ? {} : shortenSleeps(directory, suite.maxSleep)
  const results = await resultsOf(t, directory, args, { ...environment, ...shortened }, timeout)
  checkResults(t, results, suite)
  const passed = results.filter(({ status }) => status === 'success').length
  t.ok(passed >= passing, `${passed} upstream tests pass`)
  return results
}

function checkResults(t: Test, results: readonly Result[], { skipped = {}, failing = {} }: Suite): void {
  const found = new Set<string>()
  const entryOf = (name: string, reasons: Reasons) => Object.keys(reasons).find(part => isPartOf(name, part))
  for (const { test, status, details } of results) {
    const name = nameOf(test)
    const [skip, fail] = [entryOf(name, skipped), entryOf(name, failing)]
    for (const part of [skip, fail]) if (part !== undefined) found.add(part)
    const expected = skip !== undefined ? 'skip' : fail !== undefined ? 'fail' : 'success'
    const reason = skip === undefined ? '' : skipped[skip]!
    if (status === expected && details.includes(reason)) t.pass(name)
    else t.fail(name, { expected, reason, status, details: details.slice(-3000) })
  }
  const unused = Object.keys({ ...skipped, ...failing }).filter(part => !found.has(part))
  t.strictSame(unused, [], 'every exception names a test')
}

/** Python imports this module at its start. */
function shortenSleeps(directory: string, maxSleep: number): NodeJS.ProcessEnv {
  const lines = ['import time', 'sleep = time.sleep', `time.sleep = lambda seconds: sleep(min(seconds, ${maxSleep}))`]
  writeFileSync(join(directory, 'sitecustomize.py'), `${lines.join('\n')}\n`)
  return { PYTHONPATH: directory }
}

/** Runs stestr; the process group ends with the time limit. */
async function resultsOf(
  t: Test,
  directory: string,
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
  timeout: number,
): Promise<Result[]> {
  const env = { ...environment, PATH: process.env.PATH, HOME: directory, PYTHONDONTWRITEBYTECODE: '1' }
  const child = spawn(clientPython(), [program, ...args], {
    ...{ cwd: directory, env, detached: true },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const limit = setTimeout(() => process.kill(-child.pid!, 'SIGKILL'), timeout)
  const ended = new Promise<number | null>(resolve => child.once('close', resolve))
  const [stdout, stderr, status] = await Promise.all([text(child.stdout), text(child.stderr), ended])
  clearTimeout(limit)
  t.equal(status, 0, 'the suite ran to its end', { stderr: stderr.slice(-3000) })
  return stdout
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line) as Result)
}

/** The dotted name without tempest's ids; what a class sets up or tears down is named like its tests. */
function nameOf(test: string): string {
  const [, fixture, owner] = /^((?:setUp|tearDown)\w+) \((.*)\)$/.exec(test) ?? []
  return fixture === undefined ? test.replace(/\[.*\]$/, '') : `${owner}.${fixture}`
}

const isPartOf = (name: string, part: string): boolean => `.${name}.`.includes(`.${part}.`)
