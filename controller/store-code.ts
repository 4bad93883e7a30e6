import { writeFileSync } from 'node:fs'
import { codeCacheOf, loadProgram } from './program.js'

/** A step of the build: stores what V8 compiles of a bundle to load all of it. Argument: the bundle. */
const [, , bundle = ''] = process.argv
const { program, script } = loadProgram(bundle)
await program.loadAll()
// What is on the disk after a power failure must be the whole file: V8 does not check its content.
writeFileSync(codeCacheOf(bundle), script.createCachedData(), { flush: true })
