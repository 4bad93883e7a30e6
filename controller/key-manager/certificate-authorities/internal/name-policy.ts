import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import { getPublicSuffix } from 'tldts'
import type { CertificateRequest } from '../../../x509/certificate-request.js'
import type { CertificateAuthoritySettings } from './options.js'

/** What operators say of names; each stands for itself and all below it, an address range for all in it. */
export type NamePolicy = Pick<CertificateAuthoritySettings, 'reserved_names' | 'permitted_names' | 'project_names'>

/** Names that lead to whoever asks, so that no certificate of somebody else may be good for them. */
export const OWN_HOST = ['localhost', 'localdomain', '127.0.0.0/8', '::1/128']

const COMMON_NAME = '2.5.4.3'
const EMAIL_ADDRESS = '1.2.840.113549.1.9.1'
/** Clients also take common names for hosts that no alternative name may be: with underscores, or with a star for a part of a label. */
const LIKE_A_HOST = /^[a-z0-9._*-]+$/i
/** The host of these follows without slashes, behind a user or not, before parameters. */
const WITHOUT_SLASHES = /^(?:sips?|xmpp|im|pres):(?!\/\/)(?:.*@)?([^;?/]*).*$/i

/** Why a project gets no certificate for a name, as a sentence; null when it may have all that it asks for. Pure. */
export function refusalOfNames(
  policy: NamePolicy,
  projectId: string,
  request: Pick<CertificateRequest, 'subject' | 'alternativeNames'>,
): string | null {
  const own = namesOf(policy, projectId)
  for (const name of namesIn(request)) {
    if (withoutStar(name).includes('*')) return `The name ${name} has a wildcard that is no whole label.`
    if (isOfAnother(policy, projectId, name)) return `The name ${name} belongs to another project.`
    if (own.length > 0 && !own.some(each => covers(each, name))) {
      return `The name ${name} is none of those that the project may have: ${own.join(', ')}.`
    }
    if (policy.permitted_names.some(each => covers(each, name))) continue
    if (isWildcardOfSuffix(name)) return `The name ${name} stands for hosts of many owners.`
    const reserved = [...OWN_HOST, ...policy.reserved_names]
    if (isOfNobody(name) || reserved.some(each => covers(each, name) || isMatchedBy(each, name))) {
      return `The name ${name} is reserved.`
    }
  }
  return null
}

/** The names that are a project's own. */
export const namesOf = (policy: Pick<NamePolicy, 'project_names'>, projectId: string): string[] =>
  policy.project_names.filter(({ project }) => project === projectId).map(({ name }) => name)

/** The longest entry decides, so that a part of a project's names can be given to another; a wildcard needs all hosts that it stands for. */
function isOfAnother({ project_names }: NamePolicy, projectId: string, name: string): boolean {
  const covering = project_names.filter(entry => covers(entry.name, name))
  const longest = covering.filter(({ name: outer }) => covering.every(({ name: inner }) => isWithin(outer, inner)))
  const matched = project_names.filter(entry => isMatchedBy(entry.name, name)).map(entry => entry.name)
  const isOwn = (entry: string) =>
    project_names.some(({ project, name: own }) => project === projectId && own === entry)
  return (longest.length > 0 && !longest.some(entry => isOwn(entry.name))) || !matched.every(isOwn)
}

/** Hosts and addresses that a request names, in lower case, without a dot at the end. */
function namesIn({ subject, alternativeNames }: Pick<CertificateRequest, 'subject' | 'alternativeNames'>): string[] {
  const ofSubject = subject.flat().map(({ type, value }) => {
    if (type === EMAIL_ADDRESS) return hostOfEmail(value)
    return type === COMMON_NAME && (LIKE_A_HOST.test(value) || isIP(value) !== 0) ? value : ''
  })
  const others = alternativeNames.map(({ kind, value }) => {
    if (kind === 'uri') return hostOfUri(value)
    return kind === 'email' ? hostOfEmail(value) : value
  })
  return [...ofSubject, ...others].map(name => name.toLowerCase().replace(/\.$/, '')).filter(name => name !== '')
}

const hostOfEmail = (address: string): string => address.slice(address.lastIndexOf('@') + 1)

function hostOfUri(uri: string): string {
  const slashed = uri.replace(WITHOUT_SLASHES, 'x://$1')
  return new URL(URL.canParse(slashed) ? slashed : uri).hostname.replace(/^\[|\]$/g, '')
}

const withoutStar = (name: string): string => name.replace(/^\*\./, '')

/** Whether an entry stands for a name: the same or above it, or a range with the address. */
function covers(entry: string, name: string): boolean {
  if (isIP(name) !== 0) return isRange(entry) && isInRange(name, entry)
  const host = withoutStar(name)
  return !isRange(entry) && (host === entry || host.endsWith(`.${entry}`))
}

/** Whether a wildcard stands for an entry. */
const isMatchedBy = (entry: string, name: string): boolean =>
  name.startsWith('*.') && !isRange(entry) && entry.slice(entry.indexOf('.') + 1) === withoutStar(name)

/** Whether this is an address, or a range of them as `address/bits`. */
export const isRange = (entry: string): boolean => isIP(entry.split('/')[0] ?? '') !== 0

/** An address range as its first address and the bits that count. @param entry for which `isRange` holds */
export function rangeOf(entry: string): { address: ipaddr.IPv4 | ipaddr.IPv6; bits: number } {
  const [text = '', bits] = entry.split('/')
  const address = ipaddr.parse(text)
  return { address, bits: bits === undefined ? address.toByteArray().length * 8 : Number(bits) }
}

/** Whether all that one entry stands for is also in the other. */
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

/** Addresses that no single host has. */
const isOfNobody = (name: string): boolean =>
  isIP(name) !== 0 && ['unspecified', 'broadcast', 'multicast'].includes(ipaddr.process(name).range())

/** `*.com`, `*.co.uk`, `*.internal`. */
function isWildcardOfSuffix(name: string): boolean {
  if (!name.startsWith('*.')) return false
  const host = withoutStar(name)
  return !host.includes('.') || getPublicSuffix(host, { allowPrivateDomains: true }) === host
}
