import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import Handlebars from 'handlebars'
import type { HaproxyModel } from './haproxy/haproxy-model.js'
import type { KeepalivedModel } from './keepalived/keepalived-model.js'
import { type ConfigurationWord, textIfWord, textOf } from './quote.js'

/** What a template may be given: words of the writer to print, and switches and lists to choose by. */
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

/** The folder `templates` beside the program: above this file in the sources, and beside dist/ in the bundle. */
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
 * A template as a function. Values are written as they are (HTML's escapes would corrupt them), so only words of the writer are let in.
 * @throws Error at once for a template with an error of syntax or an unknown helper; at rendering, TypeError for a
 *   value that the writer did not make, and Error for a missing one
 */
export function compileTemplate<Model extends TemplateData>(source: string): (model: Model) => string {
  const options = { noEscape: true, strict: true, knownHelpersOnly: true }
  // compile() alone would find errors only when the template is used first
  templates.precompile(source, options)
  const render = templates.compile(source, options)
  return model => {
    const text = render(plain(model))
    if (text.includes(NOT_A_WORD)) throw new TypeError('A template printed a record where it should print a word.')
    return text
  }
}

/** The model with the text of each word in its place; everything printable in it came from the writer. */
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

/** What a record prints as, by mistake of a template. No word can hold a NUL, so it is seen in the text. */
const NOT_A_WORD = '\0'
const UNPRINTABLE = { toString: () => NOT_A_WORD }

const isList = (data: TemplateData): data is readonly TemplateData[] => Array.isArray(data)

const isRecord = (data: TemplateData): data is { readonly [key: string]: TemplateData } => typeof data === 'object'
