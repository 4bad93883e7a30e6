import type { Json } from '../clients/json-answers.js'

/** One string field in one of its contexts. */
export type InjectionCase = {
  /** As named by `stringLeaves`. */
  field: string
  about: string
  /** Attributes of the object, including the text. */
  body: (text: string) => Json
  /** What objects of each kind need for the text to have an effect: those above it, and its own. */
  around: Readonly<Record<string, Json>>
  /** A text without special meaning that gives the same structure. */
  harmless: (text: string) => string
  /** Texts that must be accepted and that must be refused. */
  takes: readonly string[]
  refuses: readonly string[]
  /** Frames for fragments, so that they get past the first checks. */
  frames: readonly ((fragment: string) => string)[]
  /** Whether a harmless text appears in a configuration. */
  rendered: boolean | ((harmless: string) => boolean)
  /** What appears there. */
  means: (text: string) => string
  token: 'member' | 'admin'
  /** Statuses of refusals. */
  refusals: readonly number[]
}

export const same = (text: string) => text

export function aCase(field: string, change: Partial<InjectionCase> = {}): InjectionCase {
  const attribute = field.slice(field.indexOf('.') + 1)
  return {
    field,
    about: '',
    body: text => ({ [attribute]: text }),
    around: {},
    harmless: () => 'qqharmlessqq',
    takes: [],
    refuses: [],
    frames: [same],
    rendered: false,
    means: same,
    token: 'member',
    refusals: [400],
    ...change,
  }
}

/** What HAProxy would read as syntax if it got through. */
export const SYNTAX = [
  `a' b "c" # d`,
  '%[src] %{+Q}r %%',
  '$HOME "${HOME}"',
  '\\n\\x0a\\',
  '{ path /x } unless TRUE',
  'é日😀 {{x}} <b>',
]
export const LINES = ['x\n    server evil 192.0.2.66:80', 'x\r\nglobal', '\u2028', '\x7f\x1b[2J']

export const freeText = (field: string, change: Partial<InjectionCase> = {}) =>
  aCase(field, { takes: [SYNTAX.join(' '), LINES.join(' ')], refuses: ['\0'], ...change })
