import { isIP, isIPv6 } from 'node:net'
import { isDnsName } from '../../../../x509/encoding/general-names.js'
import type { ProbeResult } from '../probe/job.js'
import type { Attempt } from './challenge.js'
import { invalid, type Outcome, unreachable, VALID } from './outcome.js'
import { findTargets } from './targets.js'

const MAX_REDIRECTS = 5
const REDIRECTS: readonly number[] = [301, 302, 303, 307, 308]

type Location = { tls: boolean; host: string; port: number; path: string }

/** Validates http-01 (RFC 8555, 8.3). Each redirect is resolved and checked like the first request. */
export async function validateHttp(attempt: Attempt): Promise<Outcome> {
  const { value, token, keyAuthorization } = attempt.challenge
  let location: Location = { tls: false, host: value, port: 80, path: `/.well-known/acme-challenge/${token}` }
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    const result = await get(attempt, location)
    if (result.kind !== 'http') return result.kind === 'refused' ? result.outcome : failureOf(location, result)
    if (!REDIRECTS.includes(result.status)) return judge(result, keyAuthorization, location)
    const next = parseLocation(result.location, location)
    if (typeof next === 'string') return invalid('connection', next)
    location = next
  }
  return invalid('connection', `There were more than ${MAX_REDIRECTS} redirects.`)
}

async function get(
  { world, challenge, signal }: Attempt,
  { tls, host, port, path }: Location,
): Promise<ProbeResult | { kind: 'refused'; outcome: Outcome }> {
  const found = await findTargets(world, challenge.projectId, host, signal)
  if (found.kind === 'refused') return found
  const bracketed = isIPv6(host) ? `[${host}]` : host
  const isUsual = port === (tls ? 443 : 80)
  let last: ProbeResult | null = null
  for (const { address, route } of found.targets) {
    const job = { kind: 'http', address, port, tls, host: isUsual ? bracketed : `${bracketed}:${port}`, path } as const
    last = await route.probe(job, signal)
    if (last.kind !== 'failed' || last.fault !== 'connection' || signal.aborted) return last
  }
  return last ?? { kind: 'failed', fault: 'connection', reason: 'no address' }
}

function failureOf({ host, port }: Location, result: ProbeResult): Outcome {
  const reason = result.kind === 'failed' ? result.reason : 'an unexpected answer'
  return unreachable('connection', `No answer from ${host}, port ${port}: ${reason}.`)
}

function judge(
  { status, body }: Extract<ProbeResult, { kind: 'http' }>,
  expected: string,
  { host, port }: Location,
): Outcome {
  if (status !== 200) return invalid('incorrectResponse', `${host}, port ${port}, answered with the status ${status}.`)
  // White space at the end is allowed.
  if (body.replace(/\s+$/, '') === expected) return VALID
  return invalid('incorrectResponse', `The answer of ${host}, port ${port}, is not the key authorization.`)
}

/** Where a redirect leads, or why it is not followed. Pure. */
export function parseLocation(text: string | null, from: Location): Location | string {
  const base = `${from.tls ? 'https' : 'http'}://${isIPv6(from.host) ? `[${from.host}]` : from.host}:${from.port}${from.path}`
  if (text === null || !URL.canParse(text, base)) return 'A redirect has no valid Location.'
  const url = new URL(text, base)
  const tls = url.protocol === 'https:'
  if (!tls && url.protocol !== 'http:') return 'A redirect leads to another protocol than HTTP.'
  const port = url.port === '' ? (tls ? 443 : 80) : Number(url.port)
  if (port !== 80 && port !== 443) return 'A redirect leads to another port than 80 and 443.'
  const host = url.hostname.replace(/^\[|\]$/g, '')
  if (url.username !== '' || (isIP(host) === 0 && !isDnsName(host))) return 'A redirect has no valid host.'
  return { tls, host, port, path: `${url.pathname}${url.search}` }
}
