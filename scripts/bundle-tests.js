import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { packagesOutside } from './build.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

/**
 * Bundles each test file into a program; all programs share chunks with the sources that they import. A test process
 * starts in half the time that loading the sources one by one takes.
 * @param files relative to the root
 * @param directory the run's directory, with a link to node_modules
 * @returns each file with its program
 */
export async function bundleTests(files, directory) {
  const { build } = await import('esbuild')
  const programs = join(directory, 'programs')
  await build({
    entryPoints: files.map(file => join(root, file)),
    ...{ outdir: programs, outbase: root, outExtension: { '.js': '.mjs' }, logLevel: 'silent' },
    ...{ bundle: true, platform: 'node', target: 'node20', format: 'esm', ...packages() },
    ...{ splitting: true, chunkNames: 'chunk-[hash]', sourcemap: 'linked', sourcesContent: false },
    define: Object.fromEntries(PLACES.map(place => [`import.meta.${place}`, nameOf(place)])),
    plugins: [{ name: 'places', setup: keepPlaces }],
  })
  return files.map(file => ({ file, program: join(programs, file.replace(/\.ts$/, '.mjs')) }))
}

/** The packages of the tests stay outside the bundle: all tests must share one tap, and few use the others. */
function packages() {
  const { external, banner } = packagesOutside()
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  return { external: [...external, ...Object.keys({ ...dependencies, ...devDependencies })], banner }
}

/** The directories that t.testdir() created in this run and did not remove. Tap names them after the program's path. */
export function testDirectories(directory) {
  const all = join(root, '.tap/fixtures')
  const names = existsSync(all) ? readdirSync(all) : []
  return names.filter(name => name.includes(`-${basename(directory)}-`)).map(name => join(all, name))
}

/** Parts of import.meta that hold a source's location. */
const PLACES = ['dirname', 'filename', 'url']
const nameOf = place => `__source_${place}`

/** Keeps import.meta of each source correct in a program that is located elsewhere. */
function keepPlaces({ onLoad }) {
  onLoad({ filter: /\.ts$/ }, ({ path }) => {
    if (relative(root, path).startsWith('node_modules')) return undefined
    const places = { dirname: dirname(path), filename: path, url: pathToFileURL(path).href }
    const constants = PLACES.map(place => `const ${nameOf(place)} = ${JSON.stringify(places[place])};`)
    // On the first line, so that line numbers stay the same.
    return { contents: constants.join('') + readFileSync(path, 'utf8'), loader: 'ts' }
  })
}
