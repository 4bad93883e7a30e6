import { join } from 'node:path'
import type { Configuration } from '../../config/schema.js'
import { formatDatabaseUrl, parseDatabaseUrl } from '../../database/url.js'

/** The socket directory of the private PostgreSQL. */
export const privateSocket = (directory: string): string => join(directory, 'postgres/socket')

/** Whether the database is the private PostgreSQL in the state directory rather than an external server. */
export function usesPrivateCluster(config: Configuration, directory: string): boolean {
  const url = config.database.url ?? config.database.identity
  return url === undefined || parseDatabaseUrl(url).url.searchParams.get('host') === privateSocket(directory)
}

/** The same server and database as `administratorUrl`, with another role. */
export function serviceUrl(administratorUrl: string, role: string, password: string): string {
  const { url, hosts } = parseDatabaseUrl(administratorUrl)
  url.username = role
  url.password = password
  return formatDatabaseUrl(url, hosts)
}

/** Options of database URLs that name files of this machine. */
const FILE_OPTIONS = ['sslrootcert', 'sslcert', 'sslkey'] as const

/** The files that a database URL names. */
export const filesOf = (url: string): string[] =>
  FILE_OPTIONS.flatMap(option => parseDatabaseUrl(url).url.searchParams.get(option) ?? [])

/** The URL with other paths for the files that it names; those that are not in the map stay. */
export function withFiles(databaseUrl: string, paths: ReadonlyMap<string, string>): string {
  const { url, hosts } = parseDatabaseUrl(databaseUrl)
  for (const option of FILE_OPTIONS) {
    const path = paths.get(url.searchParams.get(option) ?? '')
    if (path !== undefined) url.searchParams.set(option, path)
  }
  return formatDatabaseUrl(url, hosts)
}

/**
 * Why another machine could not, or should not, use the database at this URL, as a sentence; null if it can.
 */
export function whyNotFromElsewhere(databaseUrl: string): string | null {
  const { url, hosts } = parseDatabaseUrl(databaseUrl)
  const names = hosts.split(',').map(host => host.replace(/:\d+$/, ''))
  const local = names.find(name => name === '' || /^(localhost|127\.|\[::1\])/.test(name))
  if (local !== undefined || url.searchParams.has('host')) {
    return `Other machines do not reach the database at ${withoutPassword(databaseUrl)}. Name its server there as other machines reach it.`
  }
  if (url.searchParams.has('sslmode')) return null
  return `The connections to the database at ${withoutPassword(databaseUrl)} are not encrypted, and keys and passwords would pass between machines in clear. Let the server use TLS, and add sslmode=verify-full&sslrootcert=FILE to the URL; or add sslmode=disable if something else protects the network between.`
}

/** The password in a database URL. */
export function passwordOf(url: string): string {
  return decodeURIComponent(parseDatabaseUrl(url).url.password)
}

/** A database URL for messages. */
export function withoutPassword(url: string): string {
  return url.replace(/^(\w+:\/\/[^:/@]*):[^/]*@/, '$1@').replace(/\bpassword=[^&]*/g, 'password=...')
}
