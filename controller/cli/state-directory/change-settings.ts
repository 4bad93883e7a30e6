import { Document, isScalar, parseDocument } from 'yaml'
import { configurationFile, parseConfiguration, readConfiguration } from '../../config/load.js'
import { unknownSetting } from '../../config/refusal.js'
import { isPlain, type Setting, settings, valueAt } from '../../config/settings.js'
import { writePrivateFile } from '../../process/private-file.js'
import { OperatorError, UsageError } from '../operator-error.js'

/**
 * Writes settings to krater.yaml, whose comments and other settings stay. All changes are valid together, or none is
 * written.
 * @param changes `NAME=VALUE`, a value as a variable has it; without a value, the default applies again
 * @returns the names of the settings
 * @throws OperatorError, ConfigurationError
 */
export function changeSettings(directory: string, changes: readonly string[]): string[] {
  const file = configurationFile(directory)
  const given = changes.map(parseChange)
  const parsed = parseDocument(readConfiguration(file))
  if (parsed.errors.length > 0) throw new OperatorError(`${file} is not valid YAML: repair it with an editor.`)
  const document: Document = parsed.contents === null ? new Document({}) : parsed
  if (parsed.contents === null) document.commentBefore = parsed.commentBefore ?? parsed.comment
  for (const { setting, value } of given) {
    const group = setting.path
      .slice(0, -1)
      .find((_, at) => isScalar(document.getIn(setting.path.slice(0, at + 1), true)))
    if (group !== undefined) throw new OperatorError(`${file}: ${group} must be a group of settings.`)
    if (value !== '') document.setIn(setting.path, value)
    else if (document.hasIn(setting.path)) document.deleteIn(setting.path)
  }
  const config = parseConfiguration(document.toString(), {}, `${file} with ${changes.join(' ')}`)
  for (const { setting, value } of given) {
    const read = valueAt(config, setting.path)
    if (value !== '' && isPlain(read)) document.setIn(setting.path, read)
  }
  writePrivateFile(file, document.toString({ lineWidth: 0 }))
  return given.map(({ setting }) => setting.name)
}

function parseChange(change: string): { setting: Setting; value: string } {
  const at = change.indexOf('=')
  if (at < 1)
    throw new UsageError(`"${change}" is no change of a setting. Write NAME=VALUE, such as load_balancer.port=9877.`)
  const name = change.slice(0, at)
  const setting = settings.find(one => one.name === name)
  if (setting === undefined) throw new UsageError(unknownSetting(name))
  if (setting.secret) {
    throw new UsageError(
      `${name} is a secret, and others on this machine see arguments. Write it to krater.yaml with an editor.`,
    )
  }
  return { setting, value: change.slice(at + 1) }
}
