import { join } from 'node:path'
import type { Configuration } from '../../config/schema.js'

/** The socket directory of the private PostgreSQL. */
export const privateSocket = (directory: string): string => join(directory, 'postgres/socket')

/** Whether the database is the private PostgreSQL in the state directory rather than an external server. */
export function usesPrivateCluster(config: Configuration, directory: string): boolean {
  const url = config.database.url ?? config.database.identity
  return url === undefined || new URL(socketUrl(url)).searchParams.get('host') === privateSocket(directory)
}

/** The same server and database as `administratorUrl`, with another role. */
export function serviceUrl(administratorUrl: string, role: string, password: string): string {
  const url = new URL(socketUrl(administratorUrl))
  url.username = role
  url.password = password
  return url.toString().replace(`@${NO_HOST}/`, '@/')
}

const NO_HOST = 'socket.invalid'

/**
 * Adds a host to URLs of unix sockets (`postgres://role@/database?host=/directory`): the URL parser rejects an
 * empty one.
 */
function socketUrl(url: string): string {
  return url.replace(/^(postgres(?:ql)?:\/\/(?:[^/@]*@)?)\//, `$1${NO_HOST}/`)
}

/** The password in a database URL. */
export function passwordOf(url: string): string {
  return decodeURIComponent(new URL(socketUrl(url)).password)
}

/** A database URL for messages. */
export function withoutPassword(url: string): string {
  return url.replace(/^(\w+:\/\/[^:/@]*):[^/]*@/, '$1@').replace(/\bpassword=[^&]*/g, 'password=...')
}
