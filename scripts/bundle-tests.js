import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { packagesOutside } from './build.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

/**
 * Makes a program of each test file; what it imports from the sources is in chunks that all share. A test process starts with them in half
 * the time that it takes to load the sources one by one.
 * @param files relative to the root
 * @param directory of the run, with a link to node_modules
 * @returns the file and its program, of each
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

/** Those of the tests stay outside: tap is one for all, and the others are used by few. */
function packages() {
  const { external, banner } = packagesOutside()
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  return { external: [...external, ...Object.keys({ ...dependencies, ...devDependencies })], banner }
}

/** What t.testdir() of the run's programs has made and not removed: tap names it after the whole path of the program. */
export function testDirectories(directory) {
  const all = join(root, '.tap/fixtures')
  const names = existsSync(all) ? readdirSync(all) : []
  return names.filter(name => name.includes(`-${basename(directory)}-`)).map(name => join(all, name))
}

/** Parts of import.meta that tell where a source stands. */
const PLACES = ['dirname', 'filename', 'url']
const nameOf = place => `__source_${place}`

/** What a source says of its own place stays true in a program that stands elsewhere. */
function keepPlaces({ onLoad }) {
  onLoad({ filter: /\.ts$/ }, ({ path }) => {
    if (relative(root, path).startsWith('node_modules')) return undefined
    const places = { dirname: dirname(path), filename: path, url: pathToFileURL(path).href }
    const constants = PLACES.map(place => `const ${nameOf(place)} = ${JSON.stringify(places[place])};`)
    // On the first line, so that all lines keep their numbers.
    return { contents: constants.join('') + readFileSync(path, 'utf8'), loader: 'ts' }
  })
}
