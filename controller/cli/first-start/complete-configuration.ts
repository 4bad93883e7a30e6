import { existsSync, readFileSync } from 'node:fs'
import { Document, parseDocument } from 'yaml'
import { configurationFile, loadConfiguration } from '../../config/load.js'
import type { Configuration } from '../../config/schema.js'
import { roleOf } from '../../database/migrate.js'
import { writePrivateFile } from '../../process/private-file.js'
import { privateSocket, serviceUrl } from '../state-directory/database-urls.js'
import { generatePassword } from '../state-directory/keys.js'
import { serviceSchemas } from '../wiring/services.js'
import { chooseFreeCidr } from './free-cidr.js'

const HEADER = ` Krater's settings. The first start writes this file; later starts keep it. To change a setting, edit it and restart.
 Environment variables override settings: KRATER_NETWORK_DRIVER overrides network.driver.`

/**
 * Adds to krater.yaml what the first start chooses: database URLs with generated passwords, and the CIDR of the first
 * networks. Keeps settings that are already in the file or in the environment.
 */
export async function completeConfiguration(
  directory: string,
  instance: string,
  environment: NodeJS.ProcessEnv,
): Promise<Configuration> {
  const config = loadConfiguration(directory, environment)
  const file = configurationFile(directory)
  const before = existsSync(file) ? readFileSync(file, 'utf8') : ''
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
  const after = document.toString({ lineWidth: 0 })
  if (after !== before) writePrivateFile(file, after)
  return loadConfiguration(directory, environment)
}
