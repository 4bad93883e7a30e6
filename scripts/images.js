import { mkdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { packagesOutside } from './build.js'
import { restorePolicy, SERVICE_PACKAGES } from './debian-packages.js'
import { prepare } from './prepare.js'
import { Failure, failureOf, runLogged, runScript, say, step } from './progress.js'
import { interruption } from './sandbox.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const cache = join(root, 'node_modules/.cache/images')
/** Each target has its own, as two may be built beside each other. */
const LOGS = { amphora: 'images.log', lab: 'boxes.log' }

await runScript(async () => {
  restorePolicy()
  await prepare({ withImages: true })
  const { buildImages, buildLab, lockFile, readArguments, UsageError } = await builder()
  const explained = error => {
    if (error instanceof UsageError) return new Failure(error.message)
    return error?.code === 'ENOSPC' ? new Failure(`The disk is full: ${error.message}`) : error
  }
  const settings = await orFail(() => readArguments(process.argv.slice(2)), explained)
  if ('help' in settings) {
    process.stdout.write(settings.help)
    return
  }
  await takeTurn(settings.target, lockFile)
  const logFile = join(root, LOGS[settings.target])
  rmSync(logFile, { force: true })
  const signal = interruption('the files of the build')
  const places = { root, cache, tools: { step, say, run: runWith(signal, logFile) } }
  const krater = { services: SERVICE_PACKAGES, packages: packagesOutside().external }
  const build = () =>
    settings.target === 'amphora' ? buildImages(settings, places) : buildLab(settings, places, krater)
  await orFail(build, explained)
})

/** Lets only one build of a target at a time use this checkout, until this process ends. */
async function takeTurn(target, lockFile) {
  const turn = join(cache, `turn-${target}`)
  mkdirSync(turn, { recursive: true })
  if ((await lockFile(turn, 0)) !== null) return
  say('Another build is at work; this one waits for it.')
  if ((await lockFile(turn, 3600)) === null) throw new Failure('Another build has been at work for an hour.')
}

/** The builder, bundled for this process. */
async function builder() {
  const { build } = await import('esbuild')
  const outdir = join(cache, `builder.new-${process.pid}`)
  const sources = join(root, 'images/builder')
  const entryPoints = {
    arguments: join(sources, 'arguments.ts'),
    amphora: join(sources, 'build-images.ts'),
    lab: join(sources, 'lab/build-lab.ts'),
    lock: join(root, 'controller/process/file-lock.ts'),
  }
  const options = {
    bundle: true,
    splitting: true,
    platform: 'node',
    format: 'esm',
    outExtension: { '.js': '.mjs' },
    logLevel: 'silent',
  }
  await build({ entryPoints, outdir, ...options })
  const load = name => import(pathToFileURL(join(outdir, `${name}.mjs`)).href)
  const modules = await Promise.all(Object.keys(entryPoints).map(load))
  rmSync(outdir, { recursive: true })
  return Object.assign({}, ...modules)
}

async function orFail(work, explained) {
  try {
    return await work()
  } catch (error) {
    throw explained(error)
  }
}

function runWith(signal, logFile) {
  return async (program, args, { seconds = 600, ...options } = {}) => {
    if (signal.aborted) throw new Failure('Interrupted.')
    const result = await runLogged(program, args, { logFile, seconds, signal, ...options })
    if (result.code !== 0 || signal.aborted) throw failureOf(program, result, logFile)
  }
}
