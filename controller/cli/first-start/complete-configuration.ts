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

const HEADER = ` Krater's settings, written at the first start and kept by later ones. Change what you like and start again.
 Every setting can be overridden by an environment variable of its path: network.driver is KRATER_NETWORK_DRIVER.`

/**
 * Completes krater.yaml with what a first start chooses: database URLs with generated passwords, and the addresses of the first networks.
 * Settings that exist there or in the environment stay.
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
  const servicesAreNamed = serviceSchemas.every(({ schema }) => config.database[schema] !== undefined)
  if (config.database.url === undefined && !servicesAreNamed) {
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
