import { existsSync } from 'node:fs'
import { configurationFile, loadConfiguration } from '../../config/load.js'
import type { Configuration } from '../../config/schema.js'
import { connect, type Database } from '../../database/connection.js'
import type { ServiceSchema } from '../../database/migrate.js'
import type { Logger } from '../../log/log.js'
import { OperatorError } from '../operator-error.js'
import { instanceId } from '../state-directory/instance.js'

/** The instance that a command works on. */
export type Instance = { directory: string; config: Configuration }

export function openInstance(directory: string, environment = process.env): Instance {
  return { directory, config: loadConfiguration(directory, environment) }
}

/** Whether `krater up` or `krater db migrate` has set up the directory. */
export const isInitialised = (directory: string): boolean =>
  existsSync(configurationFile(directory)) && instanceId(directory) !== null

/** The database URL of a service. @throws OperatorError when it is not set */
export function databaseUrl({ directory, config }: Instance, schema: ServiceSchema['schema']): string {
  const url = config.database[schema]
  if (url === undefined && !existsSync(configurationFile(directory))) {
    throw new OperatorError(`There is no instance in ${directory}; \`krater up\` makes one.`)
  }
  if (url === undefined) {
    throw new OperatorError(
      `database.${schema} is not set in ${configurationFile(directory)}. \`krater up\` sets it for its own PostgreSQL. For another server, set the URL there or in KRATER_DATABASE_${schema.toUpperCase()}.`,
    )
  }
  return url
}

/** Opens a connection pool with the role of one service. */
export function openDatabase(
  instance: Instance,
  schema: ServiceSchema['schema'],
  user: string,
  log?: Logger,
): Database {
  return connect({ url: databaseUrl(instance, schema), applicationName: `krater ${user}`, ...(log && { log }) })
}
