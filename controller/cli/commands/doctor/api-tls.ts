import { X509Certificate } from 'node:crypto'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { connect } from 'node:tls'
import { type Finding, fault } from '../../../checks/finding.js'
import type { Configuration } from '../../../config/schema.js'
import { servesTls } from '../../../http/options.js'
import { expiryOf } from '../../../http/tls/server-certificate.js'
import { authorityCertificateFile } from '../../api-tls/authority.js'
import { hostIn } from '../../api-tls/names.js'
import { requireProtectedApis } from '../../api-tls/plain-http.js'
import { trustedAuthorities } from '../../api-tls/trust.js'
import { listenersOf } from '../../host/checks.js'
import type { Instance } from '../../wiring/instance.js'
import { listeningUrl } from '../../wiring/service-urls.js'
import { certificateFindings, type Endpoint, type Presented, RESTART } from './certificate-findings.js'

const HANDSHAKE_MS = 5_000
const DAY_MS = 86_400_000
/** Krater renews its CA years before. */
const AUTHORITY_LATE_DAYS = 365

/** Checks the certificates that the running APIs present: trust, names, expiry. Without TLS, where they listen. */
export async function checkApiTls(instance: Instance, isRunning: boolean): Promise<Finding[]> {
  const { config, directory } = instance
  await requireProtectedApis(config, listenersOf(config, null))
  if (!servesTls(config.api)) return []
  const findings = [...keyFindings(config), ...authorityFindings(config, directory)]
  if (!isRunning) return findings
  const ca = trustedAuthorities(instance)
  const authority = readAuthority(directory)
  const presented = await Promise.all(
    endpointsOf(config).map(async endpoint => {
      const found = await handshake(endpoint.url, ca, authority).catch((error: Error) => error)
      return found instanceof Error
        ? [fault(`${endpoint.name} TLS`, `${endpoint.url} completes no TLS handshake: ${found.message}`, RESTART)]
        : certificateFindings(endpoint, found, config.api.tls, new Date())
    }),
  )
  return [...findings, ...presented.flat()]
}

const SERVICES = ['identity', 'load_balancer', 'network', 'key_manager'] as const

function endpointsOf(config: Configuration): Endpoint[] {
  const own = SERVICES.filter(setting => setting !== 'identity' || config.identity.external_url === undefined)
  return own.map(setting => ({
    name: `${setting.replace('_', ' ')} API`,
    setting,
    url: listeningUrl(config, config[setting]),
    publicUrl: config[setting].public_url,
  }))
}

function keyFindings({ api }: Configuration): Finding[] {
  const { key_file: path } = api.tls
  if (path === undefined || !existsSync(path) || (statSync(path).mode & 0o007) === 0) return []
  return [fault('api.tls', `every user of this machine can read the key ${path}`, `chmod o-rwx ${path}`)]
}

function authorityFindings({ api }: Configuration, directory: string): Finding[] {
  const authority = readAuthority(directory)
  if (!api.tls.internal_ca || authority === null) return []
  const expiry = expiryOf(authority)
  if (expiry.getTime() - Date.now() > AUTHORITY_LATE_DAYS * DAY_MS) return []
  const until = expiry.toISOString().slice(0, 10)
  return [
    fault(
      'api.tls',
      `the CA ${authorityCertificateFile(directory)} expires on ${until}`,
      `${RESTART}. Then give the new file to all clients`,
    ),
  ]
}

function readAuthority(directory: string): X509Certificate | null {
  const path = authorityCertificateFile(directory)
  return existsSync(path) ? new X509Certificate(readFileSync(path)) : null
}

function handshake(url: string, ca: string | undefined, authority: X509Certificate | null): Promise<Presented> {
  const { port } = new URL(url)
  const host = hostIn(url)
  return new Promise((resolve, reject) => {
    // Whatever it presents, so that all that is wrong with it can be said.
    const socket = connect({ host, port: Number(port), rejectUnauthorized: false, ...(ca !== undefined && { ca }) })
    socket.setTimeout(HANDSHAKE_MS, () => socket.destroy(new Error(`no answer within ${HANDSHAKE_MS / 1000} s`)))
    socket.once('error', reject)
    socket.once('secureConnect', () => {
      const { raw } = socket.getPeerCertificate()
      const distrust = socket.authorized ? null : String(socket.authorizationError)
      socket.destroy()
      const leaf = new X509Certificate(raw)
      const isOwn = authority !== null && leaf.verify(authority.publicKey)
      resolve({ leaf, distrust: isAboutTrust(distrust) ? distrust : null, isOwn })
    })
  })
}

/** Names and times have findings of their own. */
const isAboutTrust = (reason: string | null): boolean =>
  reason !== null && !/ALTNAME_INVALID|HAS_EXPIRED|NOT_YET_VALID/.test(reason)
