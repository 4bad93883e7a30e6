import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import { getPublicSuffix } from 'tldts'
import type { CertificateRequest } from '../../../../x509/certificate-request.js'
import type { CertificateAuthoritySettings } from './options.js'

/** The operator's rules for names. A name includes all names below it, a range all its addresses. */
export type NamePolicy = Pick<CertificateAuthoritySettings, 'reserved_names' | 'permitted_names' | 'project_names'>

/** Names of the local host, always reserved: a certificate for them would be valid on every host. */
export const LOCAL_NAMES = ['localhost', 'localdomain', '127.0.0.0/8', '::1/128']

const COMMON_NAME = '2.5.4.3'
const EMAIL_ADDRESS = '1.2.840.113549.1.9.1'
/**
 * Common names that clients may take for hosts, including forms that no alternative name may have: with
 * underscores or partial wildcards.
 */
const HOST_LIKE = /^[a-z0-9._*-]+$/i
/** URIs whose host follows without slashes, after an optional user and before parameters. */
const URI_WITHOUT_SLASHES = /^(?:sips?|xmpp|im|pres):(?!\/\/)(?:.*@)?([^;?/]*).*$/i

/** Why a project may not get the certificate, as a sentence; null if it may have all requested names. Pure. */
export function namePolicyRefusal(
  policy: NamePolicy,
  projectId: string,
  request: Pick<CertificateRequest, 'subject' | 'alternativeNames'>,
): string | null {
  const own = projectNames(policy, projectId)
  for (const name of requestedNames(request)) {
    if (withoutWildcard(name).includes('*'))
      return `The name ${name} is invalid: a wildcard must be the whole first label.`
    if (belongsToAnother(policy, projectId, name)) return `The name ${name} belongs to another project.`
    if (own.length > 0 && !own.some(each => covers(each, name))) {
      return `The name ${name} is not among those of the project: ${own.join(', ')}.`
    }
    if (policy.permitted_names.some(each => covers(each, name))) continue
    if (isWildcardOfSuffix(name)) return `The wildcard ${name} covers hosts of many owners.`
    const reserved = [...LOCAL_NAMES, ...policy.reserved_names]
    if (isNonHostAddress(name) || reserved.some(each => covers(each, name) || isMatchedBy(each, name))) {
      return `The name ${name} is reserved.`
    }
  }
  return null
}

/** The names reserved for a project. */
export const projectNames = (policy: Pick<NamePolicy, 'project_names'>, projectId: string): string[] =>
  policy.project_names.filter(({ project }) => project === projectId).map(({ name }) => name)

/**
 * The longest entry decides, so a project's name can be split among projects. A wildcard needs all entries
 * that it covers.
 */
function belongsToAnother({ project_names }: NamePolicy, projectId: string, name: string): boolean {
  const covering = project_names.filter(entry => covers(entry.name, name))
  const longest = covering.filter(({ name: outer }) => covering.every(({ name: inner }) => isWithin(outer, inner)))
  const matched = project_names.filter(entry => isMatchedBy(entry.name, name)).map(entry => entry.name)
  const isOwn = (entry: string) =>
    project_names.some(({ project, name: own }) => project === projectId && own === entry)
  return (longest.length > 0 && !longest.some(entry => isOwn(entry.name))) || !matched.every(isOwn)
}

/** Hosts and addresses in a request, in lower case and without a final dot. */
function requestedNames({
  subject,
  alternativeNames,
}: Pick<CertificateRequest, 'subject' | 'alternativeNames'>): string[] {
  const subjectNames = subject.flat().map(({ type, value }) => {
    if (type === EMAIL_ADDRESS) return emailHost(value)
    return type === COMMON_NAME && (HOST_LIKE.test(value) || isIP(value) !== 0) ? value : ''
  })
  const others = alternativeNames.map(({ kind, value }) => {
    if (kind === 'uri') return uriHost(value)
    return kind === 'email' ? emailHost(value) : value
  })
  return [...subjectNames, ...others].map(name => name.toLowerCase().replace(/\.$/, '')).filter(name => name !== '')
}

const emailHost = (address: string): string => address.slice(address.lastIndexOf('@') + 1)

function uriHost(uri: string): string {
  const slashed = uri.replace(URI_WITHOUT_SLASHES, 'x://$1')
  return new URL(URL.canParse(slashed) ? slashed : uri).hostname.replace(/^\[|\]$/g, '')
}

const withoutWildcard = (name: string): string => name.replace(/^\*\./, '')

/** Whether an entry covers a name: it is the same or above it, or a range that contains the address. */
export function covers(entry: string, name: string): boolean {
  if (isIP(name) !== 0) return isRange(entry) && isInRange(name, entry)
  const host = withoutWildcard(name)
  return !isRange(entry) && (host === entry || host.endsWith(`.${entry}`))
}

/** Whether a wildcard name covers an entry. */
const isMatchedBy = (entry: string, name: string): boolean =>
  name.startsWith('*.') && !isRange(entry) && entry.slice(entry.indexOf('.') + 1) === withoutWildcard(name)

/** Whether this is an address or a range, `address/bits`. */
export const isRange = (entry: string): boolean => isIP(entry.split('/')[0] ?? '') !== 0

/** First address and prefix length of a range. @param entry satisfies `isRange` */
export function rangeOf(entry: string): { address: ipaddr.IPv4 | ipaddr.IPv6; bits: number } {
  const [text = '', bits] = entry.split('/')
  const address = ipaddr.parse(text)
  return { address, bits: bits === undefined ? address.toByteArray().length * 8 : Number(bits) }
}

/** Whether one entry is contained in the other. */
export function isWithin(inner: string, outer: string): boolean {
  if (!isRange(inner)) return covers(outer, inner)
  return (
    isRange(outer) && rangeOf(outer).bits <= rangeOf(inner).bits && isInRange(rangeOf(inner).address.toString(), outer)
  )
}

function isInRange(name: string, entry: string): boolean {
  const address = ipaddr.process(name)
  const range = rangeOf(entry)
  return address.kind() === range.address.kind() && address.match(range.address, range.bits)
}

/** Unspecified, broadcast and multicast addresses. */
const isNonHostAddress = (name: string): boolean =>
  isIP(name) !== 0 && ['unspecified', 'broadcast', 'multicast'].includes(ipaddr.process(name).range())

/** `*.com`, `*.co.uk`, `*.internal`. */
function isWildcardOfSuffix(name: string): boolean {
  if (!name.startsWith('*.')) return false
  const host = withoutWildcard(name)
  return !host.includes('.') || getPublicSuffix(host, { allowPrivateDomains: true }) === host
}
