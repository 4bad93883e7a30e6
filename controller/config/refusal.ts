import type * as z from 'zod'
import { nearestOf } from './nearest.js'
import { type Setting, settingAbove, settings, valueAt } from './settings.js'

/** What a message about wrong settings refers to. */
export type Context = { values: Record<string, unknown>; environment: NodeJS.ProcessEnv; file: string }

/** One sentence for an issue: the setting, its value unless secret, where it comes from, and what is allowed. */
export function explainIssue(issue: z.core.$ZodIssue, { values, environment, file }: Context): string {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map(key => explainUnknown(issue.path.map(String), key, file)).join('\n')
  }
  const name = issue.path.map(String).join('.')
  const setting = settingAbove(issue.path)
  const fromEnvironment = setting !== undefined && (environment[setting.variable] ?? '') !== ''
  const source = fromEnvironment ? setting.variable : file
  if (setting !== undefined && issue.path.length > setting.path.length) {
    return explainItem(issue, setting, { value: valueAt(values, setting.path), source })
  }
  const value = valueAt(values, issue.path)
  if (value === undefined && issue.code === 'custom') return `${name} is not set: it must be ${issue.message}.`
  return `${name}: ${shown(value, setting)} (from ${source}) is not allowed: it must be ${allowedBy(issue)}.`
}

/** About one item of a list. */
function explainItem(
  issue: z.core.$ZodIssue,
  setting: Setting,
  { value, source }: { value: unknown; source: string },
): string {
  const at = Number(issue.path[setting.path.length])
  const items = typeof value === 'string' ? value.split(',').map(item => item.trim()) : value
  const item = Array.isArray(items) ? items.filter(one => one !== '')[at] : undefined
  const form = typeof value === 'string' ? ' A list is written with commas between its items: one,two.' : ''
  return `${setting.name}: ${shown(item, setting)} in ${shown(value, setting)} (from ${source}) is not allowed: each item must be ${allowedBy(issue)}.${form}`
}

function shown(value: unknown, setting: Setting | undefined): string {
  if (setting?.secret) return 'its value (not shown)'
  return `"${typeof value === 'object' ? JSON.stringify(value) : value}"`
}

/** The names of all settings and their groups. */
const NAMES: readonly string[] = [
  ...new Set(settings.flatMap(({ path }) => path.map((_, at) => path.slice(0, at + 1).join('.')))),
]

/** `load_balancer_port` and `load_balancer.port` are the same to whoever knows the variables. */
const flat = (name: string): string => name.replaceAll('.', '_').toLowerCase()

function explainUnknown(above: readonly string[], key: string, file: string): string {
  const name = [...above, key].join('.')
  const about = `${file}: unknown setting ${name}`
  if (NAMES.includes(name)) return `${about}: write it as ${indented(key.split('.'))}.`
  const meant = likeliest(name, key.length)
  return `${about}${meant === undefined ? '' : ` (${suggestion(meant, above)})`}. \`krater settings\` lists all settings.`
}

/** The setting or group that a wrong name resembles most; undefined if it resembles none. */
function likeliest(name: string, length: number): string | undefined {
  const nearest = nearestOf(flat(name), NAMES.map(flat), length)
  return NAMES.find(one => flat(one) === nearest)
}

/** About a wrong name that is not from a file. */
export function unknownSetting(name: string): string {
  const meant = likeliest(name, name.length)
  const hint = meant === undefined || meant === name ? '' : ` (did you mean ${meant}?)`
  return `There is no setting ${name}${hint}. \`krater settings\` lists all settings.`
}

function suggestion(name: string, above: readonly string[]): string {
  const keys = name.split('.')
  const isBeside = keys.slice(0, -1).join('.') === above.join('.')
  return `did you mean ${name}?${isBeside ? '' : ` Write it as ${indented(keys)}`}`
}

/** How YAML writes a name with dots. */
function indented([first = '', second, ...others]: readonly string[]): string {
  const below = second === undefined ? '' : ` with \`${second}:\` indented below it`
  return `\`${first}:\`${below}${others.map(key => `, and \`${key}:\` below that`).join('')}`
}

function allowedBy(issue: z.core.$ZodIssue): string {
  if (issue.code === 'invalid_value') return issue.values.map(value => String(value)).join(' or ')
  if (issue.code === 'too_small' || issue.code === 'too_big') {
    const what = issue.origin === 'string' ? 'text of length' : 'a number'
    return issue.code === 'too_small'
      ? `${what} ${issue.inclusive ? 'at least' : 'above'} ${issue.minimum}`
      : `${what} ${issue.inclusive ? 'at most' : 'below'} ${issue.maximum}`
  }
  if (issue.code === 'invalid_type') {
    return issue.expected === 'object'
      ? 'a group of settings'
      : `a ${issue.expected === 'int' ? 'whole number' : issue.expected}`
  }
  if (issue.code === 'invalid_format') {
    return issue.format === 'regex' ? issue.message.replace(/^must be /, '') : `a valid ${issue.format}`
  }
  return issue.message
}
