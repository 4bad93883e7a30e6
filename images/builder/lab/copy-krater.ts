import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** Folders of the checkout with files that a running Krater reads, beside its build. */
const FOLDERS = ['templates', 'images/amphora', 'controller']
const HASHED = /(?:chunk|program)-[\w.-]+?\.(?:cjs|js)\b/g

/**
 * Copies a built Krater: its programs, the files that they read, and the packages that are not in its bundles.
 * @param checkout the top of the sources
 * @param to a new directory, from which `node dist/krater.js` then runs
 * @param packages npm's names of the packages outside the bundles; those that are not installed are left out
 */
export function copyKrater(checkout: string, to: string, packages: readonly string[]): void {
  mkdirSync(to, { recursive: true })
  writeFileSync(join(to, 'package.json'), '{ "type": "module" }\n')
  for (const path of filesOfKrater(checkout)) copy(join(checkout, path), join(to, path))
  const modules = join(checkout, 'node_modules')
  for (const name of withDependencies(packages, modules)) copy(join(modules, name), join(to, 'node_modules', name))
}

/** A built Krater without the packages: its programs and the files that they read, as paths in the checkout. */
export function filesOfKrater(checkout: string): string[] {
  const read = FOLDERS.flatMap(folder =>
    readdirSync(join(checkout, folder), { recursive: true, encoding: 'utf8' }).map(name => join(folder, name)),
  )
  const isSource = (path: string) =>
    path.includes('node_modules') || path.endsWith('.ts') || path.startsWith('controller/bin/')
  return [
    ...filesOfBuild(join(checkout, 'dist')).map(name => join('dist', name)),
    ...read.filter(path => !isSource(path) && statSync(join(checkout, path)).isFile()),
  ]
}

/** The files of the newest build: those of earlier ones, which may still run, are left out. */
function filesOfBuild(dist: string): string[] {
  const all = readdirSync(dist).filter(name => statSync(join(dist, name)).isFile())
  const found = new Set(all.filter(name => !/^(chunk|program)-/.test(name)))
  for (const name of found) {
    for (const [other] of readFileSync(join(dist, name), 'latin1').matchAll(HASHED))
      if (all.includes(other)) found.add(other)
    for (const cache of all.filter(other => other.startsWith(`${name.replace(/\.cjs$/, '')}-v`))) found.add(cache)
  }
  return [...found]
}

/** @param modules the folder node_modules */
function withDependencies(names: readonly string[], modules: string): Set<string> {
  const found = new Set(names.filter(name => existsSync(join(modules, name))))
  for (const name of found) {
    const { dependencies = {} } = JSON.parse(readFileSync(join(modules, name, 'package.json'), 'utf8')) as {
      dependencies?: Record<string, string>
    }
    for (const other of Object.keys(dependencies)) found.add(other)
  }
  return found
}

function copy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true })
  cpSync(from, to, { recursive: true, dereference: true })
}
