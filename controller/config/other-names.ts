import { isRecord } from './is-record.js'

/** Groups of settings that may also be written with Barbican's names: the group's other name and the prefix of its options. */
const OTHER_NAMES = [{ within: 'key_manager', name: 'quota', other: 'quotas', prefix: 'quota_' }]

/**
 * Replaces the other names of groups and options by those of the schema. Pure.
 * @param written the content of a configuration file
 * @returns the content with our names, and a message for each group or option that is written twice
 */
export function withOneName(written: Record<string, unknown>): {
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
      clashes.push(`${within}.${name} and ${within}.${other} are two names of one group: keep one of them.`)
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
      clashes.push(`${within}.${name} has an option twice: with ${prefix} before its name, and without.`)
    }
  }
  return { values, clashes }
}
