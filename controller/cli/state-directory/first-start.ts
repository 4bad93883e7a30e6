import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Document, parseDocument } from 'yaml'
import { configurationFile, loadConfiguration } from '../../config/load.js'
import type { Configuration } from '../../config/schema.js'
import { roleOf } from '../../database/migrate.js'
import { writePrivateFile } from '../../process/private-file.js'
import { serviceSchemas } from '../wiring/services.js'
import { chooseFreeCidr } from './free-cidr.js'
import { generatePassword } from './keys.js'

const HEADER = ` Krater's settings, written at the first start and kept by later ones. Change what you like and start again.
 Every setting can be overridden by an environment variable of its path: network.driver is KRATER_NETWORK_DRIVER.`

/** Where PostgreSQL listens when it is an instance's own. */
export const privateSocket = (directory: string): string => join(directory, 'postgres/socket')

/** True when the database is the private cluster below the state directory, and not a server that somebody else runs. */
export function usesPrivateCluster(config: Configuration, directory: string): boolean {
  const url = config.database.url ?? config.database.identity
  return url === undefined || new URL(socketUrl(url)).searchParams.get('host') === privateSocket(directory)
}

/**
 * Completes krater.yaml with what a first start has to choose: the database URLs with generated passwords, and the addresses of the first
 * networks. What is set already, there or in the environment, stays as it is.
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

/** The same server and database as `administratorUrl`, as another role. */
export function serviceUrl(administratorUrl: string, role: string, password: string): string {
  const url = new URL(socketUrl(administratorUrl))
  url.username = role
  url.password = password
  return url.toString().replace(`@${NO_HOST}/`, '@/')
}

const NO_HOST = 'socket.invalid'

/** URLs of unix sockets have no host (`postgres://role@/database?host=/directory`), which the URL parser refuses. */
function socketUrl(url: string): string {
  return url.replace(/^(postgres(?:ql)?:\/\/(?:[^/@]*@)?)\//, `$1${NO_HOST}/`)
}

/** Role and password of a service's URL, for preparing its role. */
export function passwordOf(url: string): string {
  return decodeURIComponent(new URL(socketUrl(url)).password)
}
