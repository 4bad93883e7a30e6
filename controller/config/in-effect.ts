import { isDeepStrictEqual } from 'node:util'
import { parseDocument } from 'yaml'
import { parseConfiguration } from './load.js'
import { isPlain, type Setting, settings, valueAt } from './settings.js'

/** A setting whose value is not the default. */
export type Changed = { setting: Setting; value: unknown; source: string }

/**
 * The settings that a file or the environment changes, with the value in effect and the file or variable that sets it.
 * Pure.
 * @param text content of the configuration file
 * @throws ConfigurationError when a setting is wrong
 */
export function changedSettings(text: string, environment: NodeJS.ProcessEnv, file: string): Changed[] {
  const config = parseConfiguration(text, environment, file)
  const unchanged = parseConfiguration('', {}, file)
  const written: unknown = parseDocument(text).toJS()
  return settings.flatMap(setting => {
    const value = valueAt(config, setting.path)
    if (isDeepStrictEqual(value, valueAt(unchanged, setting.path))) return []
    const words = environment[setting.variable] ?? ''
    const given = words === '' ? valueAt(written, setting.path) : words
    return [{ setting, value: isPlain(value) ? value : given, source: words === '' ? file : setting.variable }]
  })
}
