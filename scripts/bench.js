import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bundleTests } from './bundle-tests.js'
import { restorePolicy } from './debian-packages.js'
import { buildMachines } from './machine-images.js'
import { prepare } from './prepare.js'
import { Failure, runScript } from './progress.js'
import { createRunDirectory, interruption, runInSandbox } from './sandbox.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

/** The section that starts a virtual machine of this checkout, and the one whose amphorae are virtual machines. */
const IN_MACHINE = 'datagrams'
const OF_MACHINES = 'machines'

/** The program has already said which benchmarks there are. */
const WRONG_NAME = 2

// The benchmarks print their tables themselves.
await runScript(async () => {
  restorePolicy()
  const names = process.argv.slice(2)
  const isAsked = name => names.length === 0 || names.includes(name)
  const image = isAsked(OF_MACHINES)
  await prepare({ withTests: true, withMachine: isAsked(IN_MACHINE), withEmulator: image, withImages: image })
  const signal = interruption('the files of the benchmarks')
  await buildMachines({ image }, signal)
  const directory = createRunDirectory()
  try {
    const [{ program }] = await bundleTests(
      ['bench', 'datagram-traffic-program', 'doors-load', 'members'].map(name => `test/bench/${name}.ts`),
      directory,
    )
    const code = await runInSandbox([process.execPath, program, root, ...names], {
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
