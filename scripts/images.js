import { mkdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { restorePolicy } from './debian-packages.js'
import { prepare } from './prepare.js'
import { Failure, failureOf, runLogged, runScript, say, step } from './progress.js'
import { interruption } from './sandbox.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const cache = join(root, 'node_modules/.cache/images')
const logFile = join(root, 'images.log')

await runScript(async () => {
  restorePolicy()
  await prepare({ withImages: true })
  const { buildImages, readArguments, UsageError } = await builder()
  const settings = readSettings(() => readArguments(process.argv.slice(2)), UsageError)
  if ('help' in settings) {
    process.stdout.write(settings.help)
    return
  }
  rmSync(logFile, { force: true })
  const signal = interruption('the files of the build')
  await buildImages(settings, { root, cache, tools: { step, say, run: runWith(signal) } })
})

/** The builder, bundled into the cache. */
async function builder() {
  const { build } = await import('esbuild')
  const outfile = join(cache, 'builder.mjs')
  mkdirSync(cache, { recursive: true })
  const entryPoints = [join(root, 'images/builder/build-images.ts')]
  await build({ entryPoints, outfile, bundle: true, platform: 'node', format: 'esm', logLevel: 'silent' })
  return await import(pathToFileURL(outfile).href)
}

function readSettings(read, UsageError) {
  try {
    return read()
  } catch (error) {
    if (error instanceof UsageError) throw new Failure(error.message)
    throw error
  }
}

function runWith(signal) {
  return async (program, args, { seconds = 600, ...options } = {}) => {
    if (signal.aborted) throw new Failure('Interrupted.')
    const result = await runLogged(program, args, { logFile, seconds, signal, ...options })
    if (result.code !== 0 || signal.aborted) throw failureOf(program, result, logFile)
  }
}
