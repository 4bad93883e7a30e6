import { fileURLToPath } from 'node:url'
import { loadProgram } from './program.js'

/** The name of the bundle beside this file. The build defines it. */
declare const BUNDLE: string

await loadProgram(fileURLToPath(new URL(BUNDLE, import.meta.url))).program.main()
