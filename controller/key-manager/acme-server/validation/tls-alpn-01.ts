import { createHash } from 'node:crypto'
import type { ProbeResult } from '../probe/job.js'
import { canonicalAddress } from '../rules/addresses.js'
import { reverseName } from '../rules/identifiers.js'
import type { Attempt, ChallengeToValidate } from './challenge.js'
import { invalid, type Outcome, unreachable, VALID } from './outcome.js'
import { findTargets } from './targets.js'

const PORT = 443
const PROTOCOL = 'acme-tls/1'

/** Validates tls-alpn-01 (RFC 8737; for addresses RFC 8738). */
export async function validateTls({ world, challenge, signal }: Attempt): Promise<Outcome> {
  const { value, projectId, type } = challenge
  const found = await findTargets(world, projectId, value, signal)
  if (found.kind === 'refused') return found.outcome
  const serverName = type === 'ip' ? reverseName(value) : value
  let outcome = unreachable('connection', `${value} has no address.`)
  for (const { address, route } of found.targets) {
    const result = await route.probe({ kind: 'tls-alpn', address, port: PORT, serverName }, signal)
    outcome = judge(result, challenge)
    if (outcome.kind !== 'unreachable' || signal.aborted) return outcome
  }
  return outcome
}

function judge(result: ProbeResult, { value, type, keyAuthorization }: ChallengeToValidate): Outcome {
  if (result.kind === 'failed') {
    const detail = `No handshake with ${value}, port ${PORT}: ${result.reason}.`
    return result.fault === 'tls' ? invalid('tls', detail) : unreachable('connection', detail)
  }
  if (result.kind !== 'tls-alpn') throw new Error('The probe did something else')
  if (result.protocol !== PROTOCOL) return invalid('tls', `${value}, port ${PORT}, does not offer ${PROTOCOL} by ALPN.`)
  const [name, ...others] = result.names
  const isOwn =
    name?.kind === type && (type === 'ip' ? canonicalAddress(name.value) : name.value.toLowerCase()) === value
  if (!isOwn || others.length > 0)
    return invalid('incorrectResponse', `The certificate must name ${value} and nothing else.`)
  if (result.digest === createHash('sha256').update(keyAuthorization).digest('hex')) return VALID
  return invalid(
    'incorrectResponse',
    'The critical acmeIdentifier of the certificate is not the digest of the key authorization.',
  )
}
