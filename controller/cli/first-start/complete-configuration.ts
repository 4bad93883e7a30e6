import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Document, parseDocument } from 'yaml'
import { type Override, overridesOf } from '../../config/from-environment.js'
import { configurationFile, parseConfiguration, readConfiguration } from '../../config/load.js'
import { otherNameOf } from '../../config/other-names.js'
import type { Configuration } from '../../config/schema.js'
import type { Setting } from '../../config/settings.js'
import { roleOf } from '../../database/migrate.js'
import { writePrivateFile } from '../../process/private-file.js'
import { privateSocket, serviceUrl } from '../state-directory/database-urls.js'
import { generatePassword } from '../state-directory/keys.js'
import { serviceUrls } from '../wiring/service-urls.js'
import { serviceSchemas } from '../wiring/services.js'
import { chooseFreeCidr } from './free-cidr.js'

const HEADER_END = 'overrides network.driver. Those of the first start are written here.\n'
const EARLIER_HEADER_END = 'overrides network.driver.\n'
const HEADER = ` Krater's settings. The first start writes this file; later starts keep it. To change a setting, edit it and restart.
 Environment variables override settings: KRATER_NETWORK_DRIVER ${HEADER_END} A setting stands indented below its group. For example:
 load_balancer:
   port: 9877
 log_level: debug`

/** The settings of a start. */
export type CompleteConfiguration = {
  config: Configuration
  /**
   * Writes krater.yaml if something was added.
   * @param report prints a line: what was added, and later each variable that changes a setting for one start
   */
  save: (report: (line: string) => void) => void
}

/**
 * Adds to krater.yaml what the first start chooses: database URLs with generated passwords, the CIDR of the first
 * networks, and the settings of the environment except secrets, so that later starts need no variables. The first start
 * after that of an earlier version adds its ports. Keeps settings that are already in the file. Nothing is written before
 * `save`, so that a start that fails earlier, for a taken port, can be repeated with other variables.
 */
export async function completeConfiguration(
  directory: string,
  instance: string,
  environment: NodeJS.ProcessEnv,
): Promise<CompleteConfiguration> {
  const file = configurationFile(directory)
  const before = readConfiguration(file)
  const config = parseConfiguration(before, environment, file)
  const written = parseDocument(before)
  const document: Document = written.contents === null ? new Document({}) : written
  if (written.contents === null) document.commentBefore = written.comment ?? HEADER
  const haveAllServicesUrls = serviceSchemas.every(({ schema }) => config.database[schema] !== undefined)
  if (config.database.url === undefined && !haveAllServicesUrls) {
    document.setIn(
      ['database', 'url'],
      `postgres://postgres@/postgres?host=${encodeURIComponent(privateSocket(directory))}`,
    )
  }
  const administrator = config.database.url ?? String(document.getIn(['database', 'url']) ?? '')
  for (const { schema } of serviceSchemas) {
    if (config.database[schema] === undefined) {
      document.setIn(['database', schema], serviceUrl(administrator, roleOf(schema), generatePassword()))
    }
  }
  if (config.network.cidr === undefined) document.setIn(['network', 'cidr'], await chooseFreeCidr(instance))
  const overrides = overridesOf(before, environment, file)
  const isFirstStart = document.toString(LAYOUT) !== before
  const belongsToFirst = isFirstStart ? () => true : ranBefore(directory, before, config, overrides)
  const kept = overrides.filter(one => !one.setting.secret && isNotIn(document, one.setting) && belongsToFirst(one))
  for (const { setting, value } of kept) document.setIn(setting.path, value)
  const isChanged = isFirstStart || kept.length > 0
  const after = isChanged ? document.toString(LAYOUT).replace(EARLIER_HEADER_END, HEADER_END) : before
  const save = (report: (line: string) => void) => {
    if (isChanged) writePrivateFile(file, after)
    if (kept.length > 0)
      report(
        `Wrote ${kept.map(({ setting }) => setting.variable).join(', ')} to ${file}: later starts need no variables`,
      )
    for (const override of overrides.filter(one => !kept.includes(one))) report(describeOverride(override, file))
  }
  return { config: parseConfiguration(after, environment, file), save }
}

const LAYOUT = { lineWidth: 0 }

/**
 * Which variables an earlier version already ran with: it wrote no settings of its first start, so the ports would be
 * lost without them. The URL that it wrote for clients shows that it had them.
 */
function ranBefore(
  directory: string,
  text: string,
  config: Configuration,
  overrides: readonly Override[],
): (override: Override) => boolean {
  const clientFile = join(directory, 'clouds.yaml')
  const isKnown =
    text.includes(EARLIER_HEADER_END) &&
    overrides.some(({ setting }) => setting.name === 'identity.port') &&
    existsSync(clientFile) &&
    readFileSync(clientFile, 'utf8').includes(`auth_url: ${serviceUrls(config).identity}\n`)
  return ({ setting }) => isKnown && setting.path.at(-1) === 'port'
}

function isNotIn(document: Document, { path }: Setting): boolean {
  const other = otherNameOf(path)
  return !document.hasIn(path) && (other === null || !document.hasIn(other))
}

function describeOverride({ setting, value, instead }: Override, file: string): string {
  const { variable, name, secret } = setting
  if (secret) return `${variable} sets ${name} for this start only; it is a secret, so it is not written to ${file}`
  const otherwise = instead === undefined ? 'not set' : JSON.stringify(instead)
  return `${variable} sets ${name} to ${JSON.stringify(value)} for this start only; without it: ${otherwise}. To keep it, write it to ${file}`
}
