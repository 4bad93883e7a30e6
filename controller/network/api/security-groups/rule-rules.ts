import { parseAddress, parseCidr } from '../../addresses.js'
import { NeutronError } from '../neutron-error.js'
import { ICMP, ICMP_V6, PROTOCOL_NAMES, protocolNumber, WITH_PORTS } from './protocols.js'

export type EtherType = 'IPv4' | 'IPv6'

/** A rule as a request gives it. */
export type RequestedRule = {
  direction: 'ingress' | 'egress'
  ethertype: EtherType
  protocol: string | null
  port_range_min: number | null
  port_range_max: number | null
  remote_ip_prefix: string | null
  remote_group_id: string | null
}

/** A rule as it is stored. `protocol` is as requested, but for the case of its letters; null is any. */
export type Rule = RequestedRule & { protocol_number: number | null }

const isIcmp = (number: number | null) => number === ICMP || number === ICMP_V6

const refused = (type: string, message: string) => new NeutronError(400, type, message)

/** Checks a rule and brings it into its stored form. Pure. @throws NeutronError 400 with Neutron's types */
export function normaliseRule(rule: RequestedRule): Rule {
  if (rule.remote_ip_prefix !== null && rule.remote_group_id !== null) {
    throw refused(
      'SecurityGroupMultipleRemoteEntites',
      'Only one of remote_ip_prefix or remote_group_id may be provided.',
    )
  }
  const number = numberOf(rule)
  checkPorts(rule, number)
  return {
    ...rule,
    protocol: number === null ? null : rule.protocol!.toLowerCase(),
    protocol_number: number,
    remote_ip_prefix: rule.remote_ip_prefix === null ? null : prefixOf(rule.remote_ip_prefix, rule.ethertype),
  }
}

function numberOf({ protocol, ethertype }: RequestedRule): number | null {
  if (protocol === null) return null
  const number = protocolNumber(protocol)
  if (number === undefined) {
    const names = `[${PROTOCOL_NAMES.map(name => `'${name}'`).join(', ')}]`
    throw refused(
      'SecurityGroupRuleInvalidProtocol',
      `Security group rule protocol ${protocol} not supported. Only protocol values ${names} and integer representations [0 to 255] are supported.`,
    )
  }
  if (ethertype === 'IPv6' && number === ICMP) return ICMP_V6
  if (ethertype === 'IPv4' && number === ICMP_V6) {
    throw refused(
      'SecurityGroupEthertypeConflictWithProtocol',
      `Invalid ethertype ${ethertype} for protocol ${protocol}.`,
    )
  }
  return number
}

function checkPorts(
  { protocol, port_range_min: min, port_range_max: max }: RequestedRule,
  number: number | null,
): void {
  if (min === null && max === null) return
  if (number === null) {
    throw refused('SecurityGroupProtocolRequiredWithPorts', 'Must also specify protocol if port range is given.')
  }
  if (isIcmp(number)) {
    checkIcmp(min, max)
    return
  }
  if (!WITH_PORTS.has(number)) {
    throw refused(
      'SecurityGroupInvalidProtocolForPort',
      `Invalid protocol ${protocol} for port range, only supported for TCP, UDP, UDPLITE, SCTP and DCCP.`,
    )
  }
  const wrong = [min, max].find(port => port !== null && (port < 1 || port > 65_535))
  if (wrong !== undefined) throw refused('SecurityGroupInvalidPortValue', `Invalid value for port ${wrong}`)
  if (min === null || max === null || min > max) {
    throw refused('SecurityGroupInvalidPortRange', 'For TCP/UDP protocols, port_range_min must be <= port_range_max')
  }
}

function checkIcmp(type: number | null, code: number | null): void {
  const parts = [
    ['port_range_min', 'type', type],
    ['port_range_max', 'code', code],
  ] as const
  for (const [attribute, field, value] of parts) {
    if (value === null || (value >= 0 && value <= 255)) continue
    throw refused(
      'SecurityGroupInvalidIcmpValue',
      `Invalid value for ICMP ${field} (${attribute}) ${value}. It must be 0 to 255.`,
    )
  }
  if (type === null) {
    throw refused(
      'SecurityGroupMissingIcmpType',
      `ICMP code (port-range-max) ${code} is provided but ICMP type (port-range-min) is missing.`,
    )
  }
}

/** The prefix with its host bits cleared. An address alone is a prefix of its full length. */
function prefixOf(text: string, ethertype: EtherType): string {
  const address = parseAddress(text)
  const cidr = parseCidr(address === null ? text : `${text}/${address.version === 4 ? 32 : 128}`)
  if (cidr === null) {
    throw refused('InvalidCIDR', `Invalid CIDR ${text} given as IP prefix.`)
  }
  if (`IPv${cidr.version}` !== ethertype) {
    throw refused('SecurityGroupRuleParameterConflict', `Conflicting value ethertype ${ethertype} for CIDR ${text}`)
  }
  return cidr.text
}

/** What two rules of one group must not have in common. Any address is the same with and without a prefix. */
export function keyOf(rule: Rule): string {
  const { direction, ethertype, protocol_number, port_range_min, port_range_max, remote_group_id } = rule
  const prefix = rule.remote_ip_prefix?.endsWith('/0') ? null : rule.remote_ip_prefix
  const ports = isIcmp(protocol_number)
    ? [port_range_min, port_range_max]
    : [port_range_min ?? 1, port_range_max ?? 65_535]
  return JSON.stringify([direction, ethertype, protocol_number, ...ports, prefix, remote_group_id])
}
