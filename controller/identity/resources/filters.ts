import { type Fragment, identifier, sql } from '../../database/sql.js'
import { type IdentityCall, queryParameter } from '../dialect.js'

/**
 * How a query parameter filters a list: by the column with its name (a text or a boolean), by another text, or by a
 * condition of its own. Texts also have Keystone's inexact filters, such as `name__icontains`.
 */
export type Filter = 'text' | 'boolean' | { text: Fragment } | ((value: string) => Fragment)

export type Filters = Readonly<Record<string, Filter>>

/** With a leading `i`, each ignores case. */
const COMPARISONS: Readonly<Record<string, (text: Fragment, value: Fragment) => Fragment>> = {
  contains: (text, value) => sql`position(${value} IN ${text}) > 0`,
  startswith: (text, value) => sql`starts_with(${text}, ${value})`,
  endswith: (text, value) => sql`right(${text}, char_length(${value})) = ${value}`,
}

/** The conditions of a list's query. Other parameters, and comparisons that Keystone does not know, have no effect. */
export const filterConditions = (filters: Filters, { query }: Pick<IdentityCall, 'query'>): Fragment[] =>
  [...query].flatMap(([parameter, value]) => {
    if (Object.hasOwn(filters, parameter)) return [exactly(parameter, filters[parameter]!, value)]
    const { name, ignoresCase, comparison } = partsOf(parameter)
    if (!Object.hasOwn(filters, name) || !Object.hasOwn(COMPARISONS, comparison)) return []
    const text = textOf(name, filters[name]!)
    if (text === null) return []
    const compare = COMPARISONS[comparison]!
    const bound = sql`${value}::text`
    return [ignoresCase ? compare(sql`lower(${text})`, sql`lower(${bound})`) : compare(text, bound)]
  })

/** The parts of `name__icontains`. */
function partsOf(parameter: string): { name: string; ignoresCase: boolean; comparison: string } {
  const at = parameter.lastIndexOf('__')
  const how = parameter.slice(at + 2)
  const ignoresCase = how.startsWith('i')
  return { name: parameter.slice(0, Math.max(at, 0)), ignoresCase, comparison: ignoresCase ? how.slice(1) : how }
}

export const filterParameters = (filters: Filters, plural: string) =>
  Object.entries(filters).map(([name, filter]) => {
    const inexact = textOf(name, filter) === null ? '' : ` ${name}__contains and others compare parts of it.`
    return queryParameter(name, `Return only ${plural} with this ${name}.${inexact}`)
  })

function exactly(name: string, filter: Filter, value: string): Fragment {
  if (filter === 'boolean') return sql`${identifier(name)} = ${!/^(0|false|no|off|f|n)$/i.test(value)}`
  if (typeof filter === 'function') return filter(value)
  return sql`${textOf(name, filter) ?? sql`NULL`} = ${value}`
}

/** The text that a filter compares; null if it compares none. */
function textOf(name: string, filter: Filter): Fragment | null {
  if (filter === 'text') return identifier(name)
  return typeof filter === 'object' ? filter.text : null
}
