/**
 * Takes the types out of what tap runs. By default each of a hundred processes would load a compiler for it and compile all modules anew;
 * esbuild is faster, and what it made of a file is kept until the file changes.
 */
const { createHash } = require('node:crypto')
const { mkdirSync, readFileSync, renameSync, writeFileSync } = require('node:fs')
const { join } = require('node:path')
const { version } = require('esbuild/package.json')

const cache = join(__dirname, '../../node_modules/.cache/krater-transpiled')

exports.create = () => ({ transpile })

function transpile(text, { fileName }) {
  const of = sha256(`${version}\n${text}`)
  const path = join(cache, `${sha256(fileName)}.json`)
  const kept = read(path)
  if (kept?.of === of) return kept
  const { transformSync } = require('esbuild')
  const { code, map } = transformSync(text, {
    loader: 'ts',
    format: 'esm',
    target: 'node20',
    sourcemap: 'external',
    sourcefile: fileName,
  })
  const made = { of, outputText: code, sourceMapText: map }
  mkdirSync(cache, { recursive: true })
  // Other processes may be writing and reading the same.
  const aside = `${path}.${process.pid}`
  writeFileSync(aside, JSON.stringify(made))
  renameSync(aside, path)
  return made
}

function read(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch {
    return null
  }
}

const sha256 = text => createHash('sha256').update(text).digest('hex')
