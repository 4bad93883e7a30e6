import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bundleTests } from './bundle-tests.js'
import { Failure, runScript } from './progress.js'
import { createRunDirectory, interruption, runInSandbox } from './sandbox.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

/** The program has already said which benchmarks there are. */
const WRONG_NAME = 2

// The benchmarks print their tables themselves.
await runScript(async () => {
  const signal = interruption('the files of the benchmarks')
  const directory = createRunDirectory()
  try {
    const [{ program }] = await bundleTests(
      ['bench', 'datagram-traffic-program', 'doors-load', 'members'].map(name => `test/bench/${name}.ts`),
      directory,
    )
    const code = await runInSandbox([process.execPath, program, root, ...process.argv.slice(2)], {
      signal,
      env: { TMPDIR: directory, KRATER_TEST_DIRECTORY: directory },
      stdio: 'inherit',
    })
    if (code === WRONG_NAME) process.exitCode = code
    else if (code !== 0 && !signal.aborted) throw new Failure(`The benchmarks exited with status ${code}.`)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})
