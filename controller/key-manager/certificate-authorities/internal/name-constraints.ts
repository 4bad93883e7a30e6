import ipaddr from 'ipaddr.js'
import { type Asn1, taggedBytes } from '../../../x509/encoding/asn1.js'
import { nameConstraints } from '../../../x509/extensions.js'
import { isRange, isWithin, type NamePolicy, namesOf, OWN_HOST, rangeOf } from './name-policy.js'

const EVERY_ADDRESS = ['0.0.0.0/0', '::/0']

/**
 * What a project's CA may certify, as an extension that every client checks: its own names, or all but those of others and reserved ones. An exclusion wins over
 * what is permitted, so a name above one that the project may have is not excluded; there the policy alone decides. Pure.
 */
export function constraintsOf(policy: NamePolicy, projectId: string): Asn1 {
  const own = namesOf(policy, projectId)
  const others = policy.project_names.filter(({ project }) => project !== projectId).map(({ name }) => name)
  const reserved = [...OWN_HOST, ...policy.reserved_names]
  const shut = own.length > 0 && !own.some(isRange) ? EVERY_ADDRESS : []
  const excluded = [
    ...reserved.filter(name => !policy.permitted_names.some(permitted => isWithin(permitted, name))),
    ...others.filter(name => !own.some(each => isWithin(each, name))),
    ...shut,
  ]
  return nameConstraints(own.flatMap(basesOf), [...new Set(excluded)].flatMap(basesOf))
}

/** A name with all below it, as the host of a DNS name, an e-mail address and a URI. */
function basesOf(name: string): Asn1[] {
  if (isRange(name)) return [taggedBytes(7, addressAndMask(name))]
  const [host, below] = [Buffer.from(name), Buffer.from(`.${name}`)]
  return [
    taggedBytes(2, host),
    taggedBytes(1, host),
    taggedBytes(1, below),
    taggedBytes(6, host),
    taggedBytes(6, below),
  ]
}

function addressAndMask(name: string): Buffer {
  const { address, bits } = rangeOf(name)
  const kind = address.kind() === 'ipv4' ? ipaddr.IPv4 : ipaddr.IPv6
  const mask = kind.subnetMaskFromPrefixLength(bits).toByteArray()
  return Buffer.from([...address.toByteArray().map((byte, at) => byte & (mask[at] ?? 0)), ...mask])
}
