import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import Handlebars from 'handlebars'
import type { HaproxyModel } from './haproxy/haproxy-model.js'
import type { KeepalivedModel } from './keepalived/keepalived-model.js'
import { type ConfigurationWord, textIfWord, textOf } from './quote.js'

/** What a template accepts: words from quote.ts to print, and booleans, nulls and lists for control flow. */
export type TemplateData =
  | ConfigurationWord
  | boolean
  | null
  | readonly TemplateData[]
  | { readonly [key: string]: TemplateData }

type Plain = string | boolean | null | Plain[] | { [key: string]: Plain }

const templates = Handlebars.create()
const directory = findTemplates(dirname(fileURLToPath(import.meta.url)))

export const haproxyText = load<HaproxyModel>('haproxy.hbs')
export const keepalivedText = load<KeepalivedModel>('keepalived.hbs')

/** Finds the folder `templates`: above this file in the sources, beside dist/ for the bundle. */
function findTemplates(from: string): string {
  for (let folder = from; ; folder = dirname(folder)) {
    const candidate = join(folder, 'templates')
    if (existsSync(join(candidate, 'haproxy.hbs'))) return candidate
    if (folder === dirname(folder)) throw new Error(`No folder "templates" with haproxy.hbs was found above ${from}.`)
  }
}

function load<Model extends TemplateData>(name: string): (model: Model) => string {
  return compileTemplate<Model>(readFileSync(join(directory, name), 'utf8'))
}

/**
 * Compiles a template to a function. It prints values unescaped (HTML escapes would corrupt them), so it accepts only
 * words from quote.ts.
 * @throws Error immediately for a syntax error or an unknown helper; when rendering, TypeError for a value that does
 *   not come from quote.ts, and Error for a missing one
 */
export function compileTemplate<Model extends TemplateData>(source: string): (model: Model) => string {
  const options = { noEscape: true, strict: true, knownHelpersOnly: true }
  // compile() alone would report errors only on first use.
  templates.precompile(source, options)
  const render = templates.compile(source, options)
  return model => {
    const text = render(plain(model))
    if (text.includes(NOT_A_WORD)) throw new TypeError('A template printed an object where it should print a word.')
    return text
  }
}

/** Replaces each word in the model by its text. Everything printable in the result comes from quote.ts. */
function plain(data: TemplateData): Plain {
  const text = textIfWord(data)
  if (text !== null) return text
  if (data === null || typeof data === 'boolean') return data
  if (isList(data)) return data.map(plain)
  if (!isRecord(data)) return textOf(data)
  const record: { [key: string]: Plain } = Object.create(UNPRINTABLE)
  for (const [key, value] of Object.entries(data)) record[key] = plain(value)
  return record
}

/** What a faulty template prints for an object. No word can contain a NUL, so it is unambiguous in the output. */
const NOT_A_WORD = '\0'
const UNPRINTABLE = { toString: () => NOT_A_WORD }

const isList = (data: TemplateData): data is readonly TemplateData[] => Array.isArray(data)

const isRecord = (data: TemplateData): data is { readonly [key: string]: TemplateData } => typeof data === 'object'
