import { ConfigurationError } from '../options/configuration-error.js'
import { loadConfiguration } from './load.js'
import { nearestOf } from './nearest.js'
import { removedVariables } from './removed.js'
import { settings, valueAt } from './settings.js'

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
    .map(([name]) => ({ name, nearest: nearestOf(name, known, name.length - PREFIX.length) }))
    .sort((one, other) => (one.name < other.name ? -1 : 1))
}

/** Variables that settings name, such as key_manager.crypto.simple.master_key_variable. Their names are free. */
export function namedVariables(directory: string, environment: NodeJS.ProcessEnv): ReadonlySet<string> {
  try {
    const config: unknown = loadConfiguration(directory, environment)
    const names = settings.filter(({ name }) => name.endsWith('_variable')).map(({ path }) => valueAt(config, path))
    return new Set(names.filter(name => typeof name === 'string'))
  } catch (error) {
    // The command that loads the settings reports it.
    if (error instanceof ConfigurationError) return new Set()
    throw error
  }
}
