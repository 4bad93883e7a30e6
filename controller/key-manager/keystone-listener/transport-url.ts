/** Hosts and login of a message bus. Holds a password: do not log it. */
export type Transport = {
  hosts: readonly { host: string; port: number }[]
  username: string
  password: string
  virtualHost: string
  tls: boolean
}

/** One host, optionally with a login; an IPv6 address is in brackets. */
const HOST = /^(?:(?<login>[^@]*)@)?(?:\[(?<ipv6>[0-9a-fA-F:.]+)\]|(?<name>[\w.-]+))(?::(?<port>\d{1,5}))?$/

/**
 * Parses `amqp://user:password@host:port/virtual-host`, the same with amqps:// for TLS, and oslo.messaging's
 * rabbit:// form, which lists the hosts of a cluster with commas. Defaults: guest, port 5672 (5671 with TLS) and
 * the virtual host `/`.
 * @returns a string that says what the text must be, without quoting it, when the text is invalid
 */
export function parseTransportUrl(text: string): Transport | string {
  const [, scheme, authority = '', path = ''] = /^(amqps?|rabbit):\/\/([^/?#]+)(?:\/([^?#]*))?$/.exec(text) ?? []
  if (scheme === undefined) return 'a URL such as amqp://user:password@host:5672/, without a query'
  const tls = scheme === 'amqps'
  const found = authority.split(',').map(part => HOST.exec(part)?.groups)
  const hosts = found.flatMap(groups => {
    const host = groups?.ipv6 ?? groups?.name
    const port = Number(groups?.port ?? (tls ? 5671 : 5672))
    return host === undefined || port < 1 || port > 65_535 ? [] : [{ host, port }]
  })
  if (hosts.length < found.length) return 'a URL whose hosts are names or addresses, each with an optional port'
  if (hosts.length > 1 && found.some(groups => groups?.ipv6 !== undefined)) {
    return 'a URL with names or IPv4 addresses when it has several hosts'
  }
  const logins = new Set(found.flatMap(groups => groups?.login ?? []))
  if (logins.size > 1) return 'a URL with the same user and password for all of its hosts'
  const [login = 'guest:guest'] = logins
  const [username = '', password = ''] = splitLogin(login)
  const virtualHost = percentDecode(path === '' || path === '/' ? '/' : path)
  if (virtualHost === null || percentDecode(username) === null || percentDecode(password) === null) {
    return 'a URL whose special characters are percent-encoded'
  }
  return { hosts, username: percentDecode(username) ?? '', password: percentDecode(password) ?? '', virtualHost, tls }
}

function splitLogin(login: string): [string, string] {
  const colon = login.indexOf(':')
  return colon === -1 ? [login, ''] : [login.slice(0, colon), login.slice(colon + 1)]
}

function percentDecode(text: string): string | null {
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}
