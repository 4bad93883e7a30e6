import { isRecord } from './is-record.js'

/** Groups of settings that also accept Barbican's names: the group's other name and the prefix of its options. */
const OTHER_NAMES = [{ within: 'key_manager', name: 'quota', other: 'quotas', prefix: 'quota_' }]

/** The path of the same group by its other name; null for groups with one name. */
export function otherNameOf([within, name]: readonly string[]): readonly [string, string] | null {
  const known = OTHER_NAMES.find(group => group.within === within && group.name === name)
  return known === undefined ? null : [known.within, known.other]
}

/**
 * Replaces other names of groups and options with those of the schema. Pure.
 * @param written the content of a configuration file
 * @returns the content with the schema's names, and a message for each group or option that is given twice
 */
export function withSchemaNames(written: Record<string, unknown>): {
  values: Record<string, unknown>
  clashes: string[]
} {
  const values = { ...written }
  const clashes: string[] = []
  for (const { within, name, other, prefix } of OTHER_NAMES) {
    const outer = values[within]
    if (!isRecord(outer)) continue
    const { [other]: otherGroup, ...rest } = outer
    if (otherGroup !== undefined && rest[name] !== undefined) {
      clashes.push(`${within}.${name} and ${within}.${other} are names of the same group: keep only one of them.`)
      continue
    }
    const group = rest[name] ?? otherGroup
    if (!isRecord(group)) continue
    const options = Object.entries(group).map(([key, value]) => [
      key.startsWith(prefix) ? key.slice(prefix.length) : key,
      value,
    ])
    values[within] = { ...rest, [name]: Object.fromEntries(options) }
    if (new Set(options.map(([key]) => key)).size < options.length) {
      clashes.push(`${within}.${name} has an option twice: with and without the prefix ${prefix}.`)
    }
  }
  return { values, clashes }
}
