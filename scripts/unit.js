import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, rmSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bundleTests, testDirectories } from './bundle-tests.js'
import { Failure, runScript } from './progress.js'
import { createRunDirectory } from './sandbox.js'
import { createReport } from './test-report.js'

/**
 * Runs unit tests from the sources, one after the other, without a build, a sandbox, PostgreSQL or root. Prints
 * one line per test, with its failures. Arguments: files or folders; by default all of test/unit.
 */

const root = dirname(dirname(fileURLToPath(import.meta.url)))

await runScript(async () => {
  const files = unitTests(process.argv.slice(2))
  const directory = createRunDirectory()
  const total = { passed: 0, failed: 0 }
  try {
    for (const { file, program } of await bundleTests(files, directory)) {
      const { passed, failed } = await runTest(file, program)
      total.passed += passed
      total.failed += failed
    }
  } finally {
    for (const made of [directory, ...testDirectories(directory)]) rmSync(made, { recursive: true, force: true })
  }
  process.stdout.write(`${total.passed} passed, ${total.failed} failed\n`)
  process.exitCode = total.failed > 0 ? 1 : 0
})

/** @throws Failure for a name that matches no unit test */
function unitTests(named) {
  const all = readdirSync(join(root, 'test/unit'), { recursive: true })
    .map(path => join('test/unit', path))
    .filter(path => path.endsWith('.test.ts'))
    .sort()
  if (named.length === 0) return all
  return named.flatMap(name => {
    const path = relative(root, resolve(name))
    const found = all.filter(file => file === path || file.startsWith(`${path}/`))
    if (found.length === 0) throw new Failure(`There is no unit test ${path}.`)
    return found
  })
}

/** Counts a program that fails or exits before tap's plan as one more failure, unless one of its assertions failed. */
async function runTest(file, program) {
  process.stdout.write(`${file}\n`)
  const print = text => process.stdout.write(text)
  const report = createReport({ say: line => print(`  ${line}\n`), print })
  const env = { ...process.env, TAP: '1' }
  const child = spawn(process.execPath, ['--enable-source-maps', program], {
    ...{ cwd: root, env, stdio: ['ignore', 'pipe', 'inherit'] },
  })
  child.stdout.setEncoding('utf8').on('data', report.write)
  const [code] = await once(child, 'close')
  const counts = report.end() ?? report.soFar
  if (code === 0 || counts.failed > 0) return counts
  print(`  FAILED  the program exited with status ${code}\n`)
  return { ...counts, failed: 1 }
}
