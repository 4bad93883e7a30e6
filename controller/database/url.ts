/** In place of the hosts: the URL parser takes exactly one, but a socket's URL has none, and that of a cluster several. */
const PLACEHOLDER = 'hosts.invalid'

/**
 * A database URL and, apart from it, its hosts with their ports, as they are written: none for a unix socket, several
 * with commas between for a cluster. The password must be percent-encoded.
 */
export function parseDatabaseUrl(text: string): { url: URL; hosts: string } {
  const [, start = '', hosts = '', rest = ''] = /^(postgres(?:ql)?:\/\/(?:[^/@]*@)?)([^/?#]*)(.*)$/s.exec(text) ?? []
  return { url: new URL(`${start}${PLACEHOLDER}${rest}`), hosts }
}

/** The counterpart of parseDatabaseUrl. */
export const formatDatabaseUrl = (url: URL, hosts: string): string => url.toString().replace(PLACEHOLDER, hosts)

/** Whether a database is behind a unix socket, and so on this host. */
export const isBehindSocket = (text: string): boolean => parseDatabaseUrl(text).hosts === ''

/**
 * Where a database is: one URL for each of its hosts, and whether only the one that takes writes will do. All roles share
 * the name.
 */
export type DatabaseServers = { name: string; urls: [string, ...string[]]; mustBePrimary: boolean }

/** As in libpq: several hosts with commas between, and `target_session_attrs=read-write`. */
export function serversOf(text: string): DatabaseServers {
  const { url, hosts } = parseDatabaseUrl(text)
  const mustBePrimary = ['read-write', 'primary'].includes(url.searchParams.get('target_session_attrs') ?? '')
  url.searchParams.delete('target_session_attrs')
  const [first = '', ...others] = hosts.split(',')
  const urlOf = (host: string) => formatDatabaseUrl(url, host)
  const name = `${hosts}${url.pathname}${url.search}${mustBePrimary ? ' primary' : ''}`
  return { name, urls: [urlOf(first), ...others.map(urlOf)], mustBePrimary }
}
