import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { constants, Script } from 'node:vm'

/** What the bundle exports; scripts/build.js writes it. */
export type Program = {
  main: () => Promise<void>
  /** Loads everything that is otherwise loaded on demand. */
  loadAll: () => Promise<unknown>
}

/** Where the build stores what V8 compiled of a bundle. */
export const codeCacheOf = (bundle: string): string => bundle.replace(/\.cjs$/, `-${process.version}.cache`)

/**
 * Runs the top level of a bundle with what V8 compiled of it at build time. Without this cache, or if V8 refuses it
 * because it was given other options, V8 compiles as usual, which doubles the time of a start.
 * @param bundle path of a function with the parameters of a CommonJS module, in ASCII
 */
export function loadProgram(bundle: string): { program: Program; script: Script } {
  const cachedData = readIfThere(codeCacheOf(bundle))
  // V8 reads one byte per character in place.
  const script = new Script(readFileSync(bundle, 'latin1'), {
    filename: bundle,
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    ...(cachedData !== null && { cachedData }),
  })
  const module = { exports: {} as Program }
  script.runInThisContext()(module.exports, createRequire(bundle), module, bundle, dirname(bundle))
  return { program: module.exports, script }
}

function readIfThere(path: string): Buffer | null {
  try {
    return readFileSync(path)
  } catch {
    return null
  }
}
