import { execFile } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'

const root = join(import.meta.dirname, '../../..')
const SHARED = ['node_modules', 'dist', 'controller', 'amphora-agent', 'templates', 'test']
const OLDER = '# Benchmarks\n\n## Rendering\n\nolder figures\n\n## Drifts\n\nkept\n'

/** A checkout of its own: the benchmarks write their tables into its docs/. */
const directory = mkdtempSync(join(tmpdir(), 'bench-'))
chmodSync(directory, 0o755)
t.teardown(() => rmSync(directory, { recursive: true, force: true }))
mkdirSync(join(directory, 'docs'))
mkdirSync(join(directory, 'tmp'))
const page = join(directory, 'docs/benchmarks.md')
writeFileSync(page, OLDER)
cpSync(join(root, 'scripts'), join(directory, 'scripts'), { recursive: true, preserveTimestamps: true })
for (const name of [...SHARED, 'package.json', 'package-lock.json'])
  symlinkSync(join(root, name), join(directory, name))

/** `npm run bench` as README and CONTRIBUTING have it. */
function bench(...names: string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  const words = names.length === 0 ? [] : ['--', ...names]
  const env = Object.entries({ ...process.env, TMPDIR: join(directory, 'tmp') })
  const options = {
    cwd: directory,
    env: Object.fromEntries(env.filter(([name]) => !/^(NODE_OPTIONS|_?TAP.*|KRATER_.*|npm_.*)$/.test(name))),
    timeout: 300_000,
  }
  return new Promise(resolve =>
    execFile('npm', ['run', 'bench', ...words], options, (error, stdout, stderr) =>
      resolve({ status: error === null ? 0 : Number(error.code), stdout, stderr }),
    ),
  )
}

t.test('npm run bench -- SECTION prints a table and replaces that section of the page', async t => {
  const { status, stdout, stderr } = await bench('rendering')
  t.equal(status, 0, stderr)
  t.match(stdout, /## Rendering\n\nMeasured on .*`npm run bench -- rendering`\./)
  t.equal(stdout.match(/^\| (0|1|5|10) \| [\d.]+ \| [\d.]+ \| [\d.]+ \| \d+ \|$/gm)?.length, 4)
  const written = readFileSync(page, 'utf8')
  t.match(written, /^# Benchmarks\n\n## Rendering\n\nMeasured on [\s\S]*\n\n## Drifts\n\nkept\n$/)
  t.notMatch(written, 'older figures')
})

t.test('an unknown section is refused with the names that exist', async t => {
  const before = readFileSync(page, 'utf8')
  const { status, stderr } = await bench('rendering', 'speed')
  t.equal(status, 2)
  t.match(stderr, /^There is no benchmark speed\. There are: load-balancer, .*rendering.*\.$/m)
  t.notMatch(stderr, /^ +at /m)
  t.equal(readFileSync(page, 'utf8'), before)
})
