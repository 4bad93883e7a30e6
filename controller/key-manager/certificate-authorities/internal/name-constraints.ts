import ipaddr from 'ipaddr.js'
import { type Asn1, taggedBytes } from '../../../../x509/encoding/asn1.js'
import { nameConstraints } from '../../../../x509/extensions.js'
import { isRange, isWithin, LOCAL_NAMES, type NamePolicy, projectNames, rangeOf } from './name-policy.js'

const ALL_ADDRESSES = ['0.0.0.0/0', '::/0']

/**
 * The name constraints extension of a project's CA, which clients enforce. It permits only the project's own
 * names, or all names except other projects' and reserved ones. Exclusions override permissions, so a name
 * above a permitted one is not excluded; there only the policy decides. Pure.
 */
export function projectConstraints(policy: NamePolicy, projectId: string): Asn1 {
  const own = projectNames(policy, projectId)
  const others = policy.project_names.filter(({ project }) => project !== projectId).map(({ name }) => name)
  const reserved = [...LOCAL_NAMES, ...policy.reserved_names]
  const excludedAddresses = own.length > 0 && !own.some(isRange) ? ALL_ADDRESSES : []
  const excluded = [
    ...reserved.filter(name => !policy.permitted_names.some(permitted => isWithin(permitted, name))),
    ...others.filter(name => !own.some(each => isWithin(each, name))),
    ...excludedAddresses,
  ]
  return nameConstraints(own.flatMap(subtreeBases), [...new Set(excluded)].flatMap(subtreeBases))
}

/** Subtree bases for a name and all below it, as the host of a DNS name, an e-mail address and a URI. */
function subtreeBases(name: string): Asn1[] {
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
