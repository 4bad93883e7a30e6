import { isDeepStrictEqual } from 'node:util'
import { ConfigurationError } from '../options/configuration-error.js'
import { parseConfiguration } from './load.js'
import { isPlain, type Setting, settings, valueAt } from './settings.js'

/** A setting whose variable is set, and differs from what a file or the default says. */
export type Override = {
  setting: Setting
  /** As krater.yaml can hold it. */
  value: unknown
  /** What applies without the variable; undefined when nothing does. */
  instead: unknown
}

/**
 * The settings that the environment changes. Pure.
 * @param text content of a configuration file, valid with this environment
 */
export function overridesOf(text: string, environment: NodeJS.ProcessEnv, file: string): Override[] {
  const given = settings.filter(({ variable }) => (environment[variable] ?? '') !== '')
  if (given.length === 0) return []
  const config = parseConfiguration(text, environment, file)
  return given.flatMap(setting => {
    const { [setting.variable]: words, ...others } = environment
    const [value, instead] = [valueAt(config, setting.path), valueWithout(text, others, file, setting)]
    if (isDeepStrictEqual(value, instead)) return []
    return [{ setting, value: isPlain(value) ? value : words, instead }]
  })
}

function valueWithout(text: string, environment: NodeJS.ProcessEnv, file: string, setting: Setting): unknown {
  try {
    return valueAt(parseConfiguration(text, environment, file), setting.path)
  } catch (error) {
    // Another variable needs this one.
    if (error instanceof ConfigurationError) return undefined
    throw error
  }
}
