import type { X509Certificate } from 'node:crypto'
import { type Finding, fault, note, ok } from '../../../checks/finding.js'
import type { HttpSettings } from '../../../http/options.js'
import { expiryOf, namesHost } from '../../../http/tls/server-certificate.js'
import { hostIn } from '../../api-tls/names.js'

const DAY_MS = 86_400_000
/** What someone else renews should have been renewed by then. Krater renews its own ten days before their end. */
const LATE_DAYS = 7

export const RESTART = 'krater down && krater up --detach: a restart applies the settings api.tls'

/** An API, its URL and, if it has one, the public URL. */
export type Endpoint = { name: string; setting: string; url: string; publicUrl: string | undefined }

/** The certificate that an API presents. */
export type Presented = {
  leaf: X509Certificate
  /** Why our clients refuse its CA; null if they accept it. */
  distrust: string | null
  /** Whether it is of the APIs' own CA. */
  isOwn: boolean
}

/** What is wrong with the certificate that an API presents; one `ok` without a fault. Pure. */
export function certificateFindings(
  { name, setting, url, publicUrl }: Endpoint,
  { leaf, distrust, isOwn }: Presented,
  tls: HttpSettings['tls'],
  now: Date,
): Finding[] {
  const about = `${name} TLS`
  const host = hostIn(publicUrl ?? url)
  const until = expiryOf(leaf).toISOString().slice(0, 10)
  const daysLeft = (expiryOf(leaf).getTime() - now.getTime()) / DAY_MS
  const findings: Finding[] = []
  if (tls.reference !== undefined && isOwn) {
    const remedy = `grep 'No new certificate' its log; the user octavia needs an ACL for ${tls.reference} and, for a container, for each of its secrets`
    findings.push(fault(about, 'it still presents a certificate of its own CA, not that of api.tls.reference', remedy))
  } else if (distrust !== null) {
    const remedy = tls.internal_ca ? RESTART : 'set api.tls.ca_file to the PEM file of its CA'
    findings.push(fault(about, `Krater's own processes refuse its certificate: ${distrust}`, remedy))
  }
  if (daysLeft < LATE_DAYS) {
    const renew = 'renew it: the APIs read changed files, and what the reference leads to, by themselves'
    const verb = daysLeft < 0 ? 'expired' : 'expires'
    findings.push(fault(about, `its certificate ${verb} on ${until}`, tls.internal_ca ? RESTART : renew))
  }
  if (!namesHost(leaf, host)) {
    const unnamed = `its certificate does not name ${host}`
    const rename = tls.internal_ca ? `${RESTART}; it then names it` : 'get a certificate that names it'
    findings.push(
      publicUrl === undefined
        ? fault(about, `${unnamed}, where clients look for it`, `${rename}, or set ${setting}.public_url`)
        : note(about, `${unnamed} (${setting}.public_url): right only behind a proxy with TLS of its own`),
    )
  }
  return findings.length > 0 ? findings : [ok(about, `${host}, valid until ${until}`)]
}
