import type { Rule } from './filters.js'

/** IP protocols with ports at the same place: TCP, UDP, DCCP, SCTP, UDP-Lite. */
const WITH_PORTS: readonly number[] = [6, 17, 33, 132, 136]
const ICMP = 1
const ICMPV6 = 58
/** Types of ICMP requests, in both families, and of their answers. */
const ANSWERS: Readonly<Record<number, number>> = { 8: 0, 13: 14, 15: 16, 17: 18, 128: 129 }

export const chainOf = (groupId: string, direction: Rule['direction']): string => `${direction}_${hex(groupId)}`
/** The chain that accepts answers to what the group's other chain accepts. */
export const answersOf = (groupId: string, direction: Rule['direction']): string =>
  `answers_${chainOf(groupId, direction)}`
export const membersOf = (groupId: string, version: 4 | 6): string => `members${version}_${hex(groupId)}`

const hex = (id: string): string => id.replaceAll('-', '')

/** A rule in nft's words, for the packets of those who begin. Pure. */
export const ruleText = (rule: Rule): string => text(rule, rule.direction === 'ingress' ? 'saddr' : 'daddr', 'dport')

/** The same rule for packets that answer; null if nothing answers what it allows. Pure. */
export function answerText(rule: Rule): string | null {
  const side = rule.direction === 'ingress' ? 'daddr' : 'saddr'
  if (!isIcmp(rule.protocol) || rule.min === null) return text(rule, side, 'sport')
  const type = ANSWERS[rule.min]
  return type === undefined ? null : text({ ...rule, min: type }, side, 'sport')
}

const isIcmp = (protocol: number | null): boolean => protocol === ICMP || protocol === ICMPV6

function text({ version, protocol, min, max, remote }: Rule, side: 'saddr' | 'daddr', port: 'sport' | 'dport'): string {
  const ip = version === 4 ? 'ip' : 'ip6'
  const words = [`meta protocol ${ip}`]
  if (remote !== null) {
    words.push(`${ip} ${side} ${'cidr' in remote ? remote.cidr : `@${membersOf(remote.groupId, version)}`}`)
  }
  if (protocol !== null) words.push(`meta l4proto ${protocol}`)
  if (protocol !== null && WITH_PORTS.includes(protocol) && (min !== null || max !== null)) {
    words.push(`th ${port} ${min ?? 0}-${max ?? 65_535}`)
  }
  if (isIcmp(protocol)) {
    const icmp = protocol === ICMP ? 'icmp' : 'icmpv6'
    if (min !== null) words.push(`${icmp} type ${min}`)
    if (max !== null) words.push(`${icmp} code ${max}`)
  }
  return `${words.join(' ')} accept`
}
