import { X509Certificate } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { readManifest } from '../tls/files.js'

/** One certificate of a listener: its file is named by where it comes from. */
type Served = { listener: string; path: string; notAfter: number }

/** What listeners did not serve as they should. */
export type CertificateAlarms = {
  /** Of the controller's last handshakes, how many got another certificate or chain. */
  mismatches: number
  /** How often the agent took back what somebody else had put in place, since it started. */
  takenBack: number
}

const LIST = /^tls\/(.*)\.list$/
/** The certificate's own name in its file name: `default`, or the id of the container or secret. */
const NAME = /^tls\/(?:[0-9a-f-]{36}\.(?=default))?(.*)\.pem$/

/** When certificates expire, by the digests of their files: reading one costs more than everything else here. */
const known = new Map<string, number>()
const MOST_KNOWN = 1_000

/**
 * Metrics of the certificates that listeners serve; empty without any. Octavia has none like them, hence the other prefix.
 * @param directory of the configuration that HAProxy reads
 */
export function describeCertificates(directory: string, { mismatches, takenBack }: CertificateAlarms): string {
  if (!existsSync(directory)) return ''
  const { lists, files, missing } = readManifest(directory)
  const served = Object.entries(lists).flatMap(([list, certificates]) =>
    certificates.flatMap((path): Served[] => {
      const notAfter = notAfterOf(`${directory}/${path}`, files[path] ?? '')
      return notAfter === null ? [] : [{ listener: LIST.exec(list)?.[1] ?? '', path, notAfter }]
    }),
  )
  if (served.length === 0 && missing.length === 0) return ''
  const expiry = 'krater_certificate_expiry_timestamp_seconds'
  const absent = 'krater_certificate_references_missing'
  const wrong = 'krater_certificate_mismatches'
  const restored = 'krater_certificates_taken_back_total'
  return [
    `# HELP ${expiry} When a certificate of a listener expires, in seconds since 1970.`,
    `# TYPE ${expiry} gauge`,
    ...served.map(
      ({ listener, path, notAfter }) =>
        `${expiry}{listener="${listener}",certificate="${NAME.exec(path)?.[1] ?? path}"} ${notAfter}`,
    ),
    `# HELP ${absent} References that the key manager does not give out.`,
    `# TYPE ${absent} gauge`,
    `${absent} ${missing.length}`,
    `# HELP ${wrong} Handshakes of the controller, when it last looked, that got another certificate or chain than they should.`,
    `# TYPE ${wrong} gauge`,
    `${wrong} ${mismatches}`,
    `# HELP ${restored} How often the amphora found another certificate than it should serve, and took it back.`,
    `# TYPE ${restored} counter`,
    `${restored} ${takenBack}`,
    '',
  ].join('\n')
}

/** Seconds since 1970; null if the file is not there any more. @param sha256 of its content */
function notAfterOf(path: string, sha256: string): number | null {
  const before = known.get(sha256)
  if (before !== undefined) return before
  try {
    const notAfter = Date.parse(new X509Certificate(readFileSync(path)).validTo) / 1000
    if (known.size >= MOST_KNOWN) known.clear()
    known.set(sha256, notAfter)
    return notAfter
  } catch {
    return null
  }
}
