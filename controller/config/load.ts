import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseDocument } from 'yaml'
import { ConfigurationError } from '../options/configuration-error.js'
import { isRecord } from './is-record.js'
import { withSchemaNames } from './other-names.js'
import { explainIssue } from './refusal.js'
import { removedSettings } from './removed.js'
import { type Configuration, configurationSchema } from './schema.js'
import { settings } from './settings.js'

export const DEFAULT_STATE_DIRECTORY = '/var/lib/krater'

/** The state directory: the flag, else KRATER_STATE_DIR, else /var/lib/krater. */
export function stateDirectory(flag: string | undefined, environment: NodeJS.ProcessEnv): string {
  return resolve(flag ?? (environment.KRATER_STATE_DIR || DEFAULT_STATE_DIRECTORY))
}

export const configurationFile = (directory: string): string => join(directory, 'krater.yaml')

/**
 * Loads krater.yaml, which may be missing; the environment overrides it.
 * @throws ConfigurationError that lists every invalid setting with its value, unless secret, and the allowed values
 */
export function loadConfiguration(directory: string, environment: NodeJS.ProcessEnv): Configuration {
  const file = configurationFile(directory)
  return parseConfiguration(readConfiguration(file), environment, file)
}

/** The content of a configuration file; empty when it is missing. */
export const readConfiguration = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '')

/** As loadConfiguration, with the content of the file. */
export function parseConfiguration(text: string, environment: NodeJS.ProcessEnv, file = 'krater.yaml'): Configuration {
  const written = readYaml(text, file)
  if (!isRecord(written)) throw new ConfigurationError(`${file} must hold settings as "name: value" lines.`)

  const removed = removedSettings(written, environment, file)
  if (removed.length > 0) throw new ConfigurationError(removed.join('\n'))
  const { values: merged, clashes } = withSchemaNames(structuredClone(written))
  if (clashes.length > 0) throw new ConfigurationError(clashes.map(clash => `${file}: ${clash}`).join('\n'))
  for (const { path, variable } of settings) {
    const value = environment[variable]
    // Many tools set a variable to the empty string to unset it.
    if (value !== undefined && value !== '') put(merged, path, value)
  }
  const parsed = configurationSchema.safeParse(merged)
  if (parsed.success) return parsed.data
  throw new ConfigurationError(
    parsed.error.issues.map(issue => explainIssue(issue, { values: merged, environment, file })).join('\n'),
  )
}

function readYaml(text: string, file: string): unknown {
  const document = parseDocument(text, { prettyErrors: true })
  const [syntax] = document.errors
  if (syntax !== undefined) throw new ConfigurationError(`${file} is not valid YAML: ${syntax.message}`)
  try {
    return document.toJS() ?? {}
  } catch (error) {
    // An undefined alias, or one that expands too far.
    throw new ConfigurationError(`${file} is not valid YAML: ${error instanceof Error ? error.message : error}`)
  }
}

function put(target: Record<string, unknown>, path: readonly string[], value: string): void {
  const [key, ...rest] = path
  if (key === undefined) return
  if (rest.length === 0) {
    target[key] = value
    return
  }
  const inner = isRecord(target[key]) ? target[key] : {}
  target[key] = inner
  put(inner, rest, value)
}
