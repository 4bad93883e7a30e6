import ipaddr from 'ipaddr.js'
import * as z from 'zod'
import { type GeneralName, isDnsName } from '../../../../x509/encoding/general-names.js'
import { type NamePolicy, namePolicyRefusal } from '../../certificate-authorities/internal/name-policy.js'
import { AcmeProblem, type Identifier, malformed, type Problem } from '../problem.js'
import { canonicalAddress, isForbiddenAddress } from './addresses.js'

export const MAX_IDENTIFIERS = 100

const given = z
  .array(z.object({ type: z.string(), value: z.string() }))
  .min(1)
  .max(MAX_IDENTIFIERS)

/**
 * The identifiers of a new order, canonical and without duplicates, in the order given.
 * @throws AcmeProblem malformed, unsupportedIdentifier, rejectedIdentifier, with a subproblem for each one
 */
export function parseIdentifiers(value: unknown, policy: NamePolicy, projectId: string): Identifier[] {
  const parsed = given.safeParse(value)
  if (!parsed.success) {
    throw malformed(`An order needs 1 to ${MAX_IDENTIFIERS} identifiers, each with a type and a value.`)
  }
  const read = parsed.data.map(readIdentifier)
  const faults = read.flatMap(each => ('problem' in each ? [each.problem] : []))
  if (faults.length > 0) throw refusalOf(faults)
  const all = new Map(
    read.flatMap(each =>
      'problem' in each ? [] : [[`${each.identifier.type} ${each.identifier.value}`, each.identifier]],
    ),
  )
  const identifiers = [...all.values()]
  const refused = identifiers.flatMap(identifier => refusalFor(identifier, policy, projectId) ?? [])
  if (refused.length > 0) throw refusalOf(refused)
  return identifiers
}

function refusalOf(problems: readonly Problem[]): AcmeProblem {
  const [first] = problems
  const type = first?.type ?? 'rejectedIdentifier'
  return new AcmeProblem(type, first?.detail ?? '', problems.length > 1 ? { subproblems: problems } : {})
}

function readIdentifier({
  type,
  value,
}: {
  type: string
  value: string
}): { identifier: Identifier } | { problem: Problem } {
  const shown = value.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 100)
  if (type === 'dns') {
    const name = value.toLowerCase()
    if (isDnsName(name)) return { identifier: { type, value: name } }
    return { problem: { type: 'malformed', detail: `"${shown}" is not a host name.` } }
  }
  if (type !== 'ip')
    return { problem: { type: 'unsupportedIdentifier', detail: 'The type of an identifier must be dns or ip.' } }
  const address = canonicalAddress(value)
  // The address in an order must be in its only form (RFC 8738, 3).
  if (address !== null && address === value.toLowerCase()) return { identifier: { type, value: address } }
  return { problem: { type: 'malformed', detail: `"${shown}" is not an address in canonical form.` } }
}

/** Why a project may not have an identifier; null if it may. */
function refusalFor(identifier: Identifier, policy: NamePolicy, projectId: string): Problem | null {
  const { value } = identifier
  if (identifier.type === 'ip' && isForbiddenAddress(value)) {
    return { type: 'rejectedIdentifier', detail: `The address ${value} is reserved.`, identifier }
  }
  const detail = namePolicyRefusal(policy, projectId, { subject: [], alternativeNames: [nameOf(identifier)] })
  return detail === null ? null : { type: 'rejectedIdentifier', detail, identifier }
}

const nameOf = ({ type, value }: Identifier): GeneralName => ({ kind: type, value })

/** The name to prove control of: a wildcard's domain. */
export const isWildcard = ({ type, value }: Identifier): boolean => type === 'dns' && value.startsWith('*.')
export const authorizedName = ({ value }: Identifier): string => value.replace(/^\*\./, '')

export type ChallengeType = 'http-01' | 'tls-alpn-01' | 'dns-01'

/** How control of an identifier can be proven: a wildcard's by DNS only, an address's not by DNS. Pure. */
export function challengesFor(identifier: Identifier): readonly ChallengeType[] {
  if (isWildcard(identifier)) return ['dns-01']
  return identifier.type === 'ip' ? ['http-01', 'tls-alpn-01'] : ['http-01', 'tls-alpn-01', 'dns-01']
}

/** The name of an address in the reverse tree, which stands for it in TLS (RFC 8738, 6). Pure. */
export function reverseName(address: string): string {
  const parsed = ipaddr.parse(address)
  if (parsed.kind() === 'ipv4') return `${parsed.toByteArray().reverse().join('.')}.in-addr.arpa`
  const digits = Buffer.from(parsed.toByteArray()).toString('hex')
  return `${[...digits].reverse().join('.')}.ip6.arpa`
}
