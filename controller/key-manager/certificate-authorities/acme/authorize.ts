import * as z from 'zod'
import { type Challenge, type ChallengePublisher, digestOf, NotServed, usableTypes } from './challenges.js'
import type { Account, AcmeClient } from './client/client.js'
import { thumbprintOf } from './client/jose.js'
import { problemIn } from './client/problem.js'
import type { ChallengeType } from './options.js'
import { type AcmeAuthorization, acmeAuthorization } from './order.js'

/** How many names of an order are published at a time. */
const AT_ONCE = 10
const MAX_LIFE_MS = 86_400_000

export type Authorizing = {
  client: AcmeClient
  account: Account
  publishers: Readonly<Partial<Record<ChallengeType, ChallengePublisher>>>
  preferred: readonly ChallengeType[]
  /** Whether the project may prove this name by a record in the operator's zones. */
  dnsAllowed: (name: string) => boolean
  requestId: string
  projectId: string
  /** URLs of challenges that the CA was told to validate. */
  answered: readonly string[]
  /** Stores more of them. */
  remember: (told: readonly string[]) => Promise<void>
  /** Stores authorizations that the CA is about to validate. */
  intend: (authorizations: readonly string[]) => Promise<void>
}

export type Authorized =
  | { kind: 'waiting'; retryAfter: number | null }
  /** For tenants. */
  | { kind: 'refused'; reason: string }

/**
 * Takes the authorizations of a pending order as far as they get now: publishes challenges, and tells the CA about those
 * that are being served.
 * @throws AcmeProblem, Unreachable, NotServed
 */
export async function authorize(parts: Authorizing, urls: readonly string[], signal: AbortSignal): Promise<Authorized> {
  const { client, account, remember, intend } = parts
  const open: { url: string; authorization: AcmeAuthorization }[] = []
  let retryAfter: number | null = null
  for (const url of urls) {
    const read = await client.post(account, url, null, acmeAuthorization, signal)
    retryAfter = read.retryAfter ?? retryAfter
    const { status, challenges } = read.value
    if (status === 'valid') continue
    if (status !== 'pending') return { kind: 'refused', reason: refusalOf(read.value) }
    if (!challenges.some(challenge => isTold(parts, challenge))) open.push({ url, authorization: read.value })
  }
  for (let at = 0; at < open.length; at += AT_ONCE) {
    const chunk = open.slice(at, at + AT_ONCE)
    const served = await Promise.all(chunk.map(({ authorization }) => publishOne(parts, authorization, signal)))
    await intend(chunk.map(({ url }) => url))
    const told: string[] = []
    for (const each of served) {
      if ('reason' in each) return { kind: 'refused', reason: each.reason }
      await client.post(account, each.url, {}, z.unknown(), signal)
      told.push(each.url)
    }
    await remember(told)
  }
  return { kind: 'waiting', retryAfter }
}

/** The CA may have been told by a worker that died before it stored that. */
const isTold = ({ answered }: Authorizing, { url, status }: { url: string; status: string }): boolean =>
  status !== 'pending' || answered.includes(url)

const nameOf = ({ identifier, wildcard }: AcmeAuthorization): string =>
  wildcard === true ? `*.${identifier.value}` : identifier.value

function refusalOf(authorization: AcmeAuthorization): string {
  const error = authorization.challenges.find(challenge => challenge.error !== undefined)?.error
  const detail = error === undefined ? `it is ${authorization.status}` : problemIn(error, 0, null).message
  return `The CA does not accept the name ${nameOf(authorization)}: ${detail}`
}

/** Publishes the challenges for one name until one is being served. @returns its URL, or why there is none */
async function publishOne(
  parts: Authorizing,
  authorization: AcmeAuthorization,
  signal: AbortSignal,
): Promise<{ url: string } | { reason: string }> {
  const candidates = candidatesFor(parts, authorization, await thumbprintOf(parts.account.key))
  const [first] = candidates
  const name = nameOf(authorization)
  if (first === undefined)
    return { reason: `No challenge can prove the name ${name}: ${whyNone(parts, authorization)}` }
  const publish = async ({ challenge, publisher, url }: Candidate) => {
    await publisher.publish(challenge, signal)
    return { url }
  }
  const isDns = ({ challenge }: Candidate) => challenge.type === 'dns-01'
  if (isDns(first)) return publish(first)
  // Which of them a load balancer serves depends on its listeners.
  return Promise.any(candidates.filter(each => !isDns(each)).map(publish)).catch(async (error: AggregateError) => {
    const unexpected = error.errors.find(each => !(each instanceof NotServed))
    if (unexpected !== undefined) throw unexpected
    const dns = candidates.find(isDns)
    if (dns !== undefined) return publish(dns)
    throw error.errors[0]
  })
}

function whyNone(
  { publishers, dnsAllowed }: Authorizing,
  { identifier, wildcard, challenges }: AcmeAuthorization,
): string {
  if (wildcard !== true) return `the CA offers ${challenges.map(({ type }) => type).join(', ')}.`
  if (publishers['dns-01'] === undefined) return 'a wildcard needs a record in the DNS, and there is no hook for it.'
  return dnsAllowed(identifier.value)
    ? 'the CA offers no challenge in the DNS.'
    : 'a record in the DNS needs a name that the operator gave to the project.'
}

type Candidate = { challenge: Challenge; publisher: ChallengePublisher; url: string }

function candidatesFor(parts: Authorizing, authorization: AcmeAuthorization, thumbprint: string): Candidate[] {
  const { publishers, preferred, requestId, projectId } = parts
  const { identifier, wildcard = false, challenges, expires } = authorization
  const types = usableTypes(
    challenges.map(({ type }) => type),
    {
      preferred,
      isWildcard: wildcard,
      isAddress: identifier.type === 'ip',
      dnsAllowed: parts.dnsAllowed(identifier.value),
    },
  )
  return types.flatMap(type => {
    const publisher = publishers[type]
    const offered = challenges.find(challenge => challenge.type === type)
    if (publisher === undefined || offered?.token === undefined) return []
    const keyAuthorization = `${offered.token}.${thumbprint}`
    const challenge: Challenge = {
      ...{ requestId, projectId, type, identifier: identifier.value, token: offered.token, keyAuthorization },
      digest: digestOf(keyAuthorization),
      expiresAt: new Date(Math.min(Date.parse(expires ?? '') || Number.POSITIVE_INFINITY, Date.now() + MAX_LIFE_MS)),
    }
    return [{ challenge, publisher, url: offered.url }]
  })
}
