import { lookup } from 'node:dns/promises'
import { BlockList, isIP } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Configuration } from '../../config/schema.js'
import { servesTls } from '../../http/options.js'
import { ConfigurationError } from '../../options/configuration-error.js'

/** An API and the address on which it listens. */
export type Listening = { what: string; setting: string; host: string }

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

const isLoopback = (address: string): boolean =>
  isIP(address) !== 0 && loopback.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')

/**
 * Refuses plain HTTP where others could read passwords and tokens on their way.
 * @throws ConfigurationError with the ways out
 */
export async function requireProtectedApis({ api }: Configuration, listening: readonly Listening[]): Promise<void> {
  if (servesTls(api) || api.allow_http) return
  const open = (await Promise.all(listening.map(async one => ((await isOpen(one.host)) ? [one] : [])))).flat()
  if (open.length === 0) return
  const [hosts, apis] = [open.map(({ setting, host }) => `${setting}.host is ${host}`), open.map(({ what }) => what)]
  throw new ConfigurationError(
    `${hosts.join(', ')}: there, ${apis.join(', ')} would send passwords, tokens and secrets in clear. Serve HTTPS: set api.tls.internal_ca to true (KRATER_API_TLS_INTERNAL_CA), or api.tls.certificate_file and api.tls.key_file to a certificate of yours. If something else protects this traffic, such as a proxy with TLS on a network of its own, set api.allow_http to true (KRATER_API_ALLOW_HTTP).`,
  )
}

const LOOKUP_MS = 5_000

/**
 * Whether others may reach the address. An unknown name is for whoever listens on it to report; a name server that does
 * not answer says nothing of loopback.
 */
async function isOpen(host: string): Promise<boolean> {
  const known = lookup(host, { all: true }).catch(() => [])
  const unknown = sleep(LOOKUP_MS, [{ address: host }], { ref: false })
  const addresses = await Promise.race([known, unknown])
  return addresses.some(({ address }) => !isLoopback(address))
}
