import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { bundle } from '../../support/worlds/programs.js'

/** Runs a program that limits its heap first. @returns its exit code, and what it printed */
async function runLimited(directory: string, name: string, body: string): Promise<{ code: number; said: string }> {
  const source = join(directory, `${name}.ts`)
  const heap = join(import.meta.dirname, '../../../amphora-agent/process/heap.js')
  writeFileSync(
    source,
    `import { getHeapSpaceStatistics } from 'node:v8'\nimport { limitHeap } from ${JSON.stringify(heap)}\nlimitHeap()\n${body}`,
  )
  await bundle({ [name]: source }, directory)
  const run = promisify(execFile)(process.execPath, [join(directory, `${name}.mjs`)], { timeout: 60_000 })
  return run.then(
    ({ stdout }) => ({ code: 0, said: stdout }),
    ({ code, stdout, stderr }) => ({ code, said: stdout + stderr }),
  )
}

t.test('an agent’s heap stays small while objects come and go', async t => {
  const churn = `let kept: unknown[] = []
    for (let made = 0; made < 1_000_000; made++) {
      kept.push({ made, more: [made] })
      if (kept.length > 10_000) kept = []
    }
    const [young] = getHeapSpaceStatistics().filter(space => space.space_name === 'new_space')
    console.log(young?.space_size)
    process.exit(0)`
  const { code, said } = await runLimited(t.testdir(), 'churn', churn)
  t.equal(code, 0, said)
  t.ok(Number(said) > 0 && Number(said) <= 4 * 1024 * 1024, `the young generation has ${said.trim()} bytes`)
})

t.test('an agent whose heap grows without bound ends, and says so', async t => {
  const leak = `const kept: unknown[] = []
    for (let made = 0; made < 40; made++) kept.push(Array.from({ length: 1_000_000 }, (_, index) => made * 1.5 + index))
    setTimeout(() => console.log(kept.length), 30_000)`
  const { code, said } = await runLimited(t.testdir(), 'leak', leak)
  t.equal(code, 1, said)
  t.match(said, /its heap has [3-9]\d{8} bytes; it ends, to start again/)
})
