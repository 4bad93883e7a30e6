import { spawn } from 'node:child_process'
import { mkdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Failure, runScript } from './progress.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const built = join(root, 'dist', 'bench')

// The benchmarks are TypeScript; they are bundled for the run and write their table themselves.
await runScript(async () => {
  const { build } = await import('esbuild')
  mkdirSync(built, { recursive: true })
  const program = join(built, 'bench.js')
  await build({
    entryPoints: { bench: join(root, 'test/bench/bench.ts') },
    outdir: built,
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'esm',
    packages: 'external',
    logLevel: 'silent',
  })
  try {
    const child = spawn(process.execPath, [program, root, ...process.argv.slice(2)], { stdio: 'inherit' })
    const code = await new Promise((resolve, reject) => {
      child.on('error', reject)
      child.on('close', resolve)
    })
    if (code !== 0) throw new Failure(`The benchmarks ended with status ${code}.`)
  } finally {
    rmSync(built, { recursive: true, force: true })
  }
})
