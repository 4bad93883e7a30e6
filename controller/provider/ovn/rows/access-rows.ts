import type { ListenerNode } from '../../../load-balancer/tree/tree.js'
import { cidrsOutside } from '../../../network/addresses.js'
import type { DesiredRow, Holder } from '../../../ovn/northbound/desired.js'
import { rowUuid, switchUuid } from '../../../ovn/northbound/row-uuid.js'
import type { OvnFacts } from './facts.js'
import { versionOf, WORDS } from './names.js'

/** Above the rules of security groups. */
const PRIORITY = 32_000

/**
 * What keeps clients out that a listener's allowed CIDRs do not name. The rules stand where packets enter a network,
 * before OVN has chosen a member for them. A router with a gateway chooses by itself, before any client network sees the
 * address, so rules stand also where packets enter the networks of its other legs, for what is sent to these: there, the
 * address may be somebody else's.
 */
export function accessRows(listener: ListenerNode, facts: OvnFacts): DesiredRow[] {
  const { allowedCidrs, protocolPort } = listener
  if (allowedCidrs === null || allowedCidrs.length === 0) return []
  const { instance, vips, floatingIps, clientNetworks, entrances } = facts
  const protocol = listener.protocol.toLowerCase()
  return [...vips, ...floatingIps].flatMap(({ address }): DesiredRow[] => {
    const family = versionOf(address) === 4 ? 'ip4' : 'ip6'
    // OVN makes flows of every combination of conditions with `!=`, so the rule names all others.
    const strangers = cidrsOutside(versionOf(address), allowedCidrs)
    if (strangers.length === 0) return []
    const match = [`${family}.dst == ${address}`, `${protocol}.dst == ${protocolPort}`]
    if (!strangers[0]?.endsWith('/0')) match.push(`${family}.src == {${strangers.join(', ')}}`)
    const rule = (
      words: readonly string[],
      conditions: readonly string[],
      networks: readonly string[],
    ): DesiredRow => ({
      table: 'ACL',
      uuid: rowUuid(instance, ...words),
      row: {
        direction: 'from-lport',
        priority: PRIORITY,
        match: conditions.join(' && '),
        action: 'drop',
        external_ids: { 'krater:listener': listener.id },
      },
      heldBy: networks.map(
        (networkId): Holder => ({
          table: 'Logical_Switch',
          uuid: switchUuid(instance, networkId),
          column: 'acls',
        }),
      ),
    })
    return [
      rule(WORDS.accessRule(listener.id, address), match, clientNetworks),
      ...entrances.map(entrance =>
        rule(
          WORDS.entranceRule(listener.id, address, entrance),
          [`eth.dst == ${entrance.macAddress}`, ...match],
          [entrance.networkId],
        ),
      ),
    ]
  })
}
