import { ConfigurationError } from '../options/configuration-error.js'
import { isRecord } from './is-record.js'
import { loadConfiguration } from './load.js'
import { removedVariables } from './removed.js'
import { settings } from './settings.js'

/** Variables of Krater that are not settings. */
const OTHER_VARIABLES: ReadonlySet<string> = new Set([
  'KRATER_STATE_DIR',
  'KRATER_TEST_DIRECTORY',
  'KRATER_UP_PROGRESS',
])

/** What Kubernetes and Docker set for a service or container named krater. */
const OF_ORCHESTRATORS = /_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP)(_(ADDR|PORT|PROTO))?$/
const ADDRESS_OF_SERVICE = /^(tcp|udp):\/\//

const PREFIX = 'KRATER_'

export type UnknownVariable = { name: string; nearest: string | null }

/**
 * KRATER_ variables that match no setting, with the most similar name that exists. Ignoring a misspelt one could
 * work on another instance, or leave a restriction unset.
 * @param named names that settings refer to
 */
export function unknownVariables(
  environment: NodeJS.ProcessEnv,
  named: ReadonlySet<string> = new Set(),
): UnknownVariable[] {
  const known = new Set([
    ...settings.map(({ variable }) => variable),
    ...OTHER_VARIABLES,
    ...removedVariables,
    ...named,
  ])
  return Object.entries(environment)
    .filter(([name]) => name.startsWith(PREFIX) && !known.has(name))
    .filter(([name, value = '']) => !OF_ORCHESTRATORS.test(name) && !ADDRESS_OF_SERVICE.test(value))
    .map(([name]) => ({ name, nearest: nearestOf(name, known) }))
    .sort((one, other) => (one.name < other.name ? -1 : 1))
}

/** Variables that settings name, such as key_manager.crypto.simple.master_key_variable. Their names are free. */
export function namedVariables(directory: string, environment: NodeJS.ProcessEnv): ReadonlySet<string> {
  try {
    const config: unknown = loadConfiguration(directory, environment)
    const names = settings
      .filter(({ name }) => name.endsWith('_variable'))
      .map(({ path }) => path.reduce<unknown>((node, key) => (isRecord(node) ? node[key] : undefined), config))
    return new Set(names.filter(name => typeof name === 'string'))
  } catch (error) {
    // The command that loads the settings reports it.
    if (error instanceof ConfigurationError) return new Set()
    throw error
  }
}

/** @returns null when more than a third of the name would be wrong */
function nearestOf(name: string, known: ReadonlySet<string>): string | null {
  const [nearest] = [...known]
    .map(candidate => ({ candidate, distance: distanceOf(name, candidate) }))
    .sort((one, other) => one.distance - other.distance)
  return nearest === undefined || nearest.distance * 3 > name.length - PREFIX.length ? null : nearest.candidate
}

/** Levenshtein's distance: inserted, removed and replaced characters. */
function distanceOf(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at)
  for (let i = 1; i <= one.length; i++) {
    const next = [i]
    for (let j = 1; j <= other.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (one[i - 1] === other[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[other.length] ?? 0
}
