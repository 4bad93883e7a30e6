import { SHARE_KEY, shareRules } from '../connections/shares.js'

/** The table in which the fabric tracks the connections of networks that have filters, with its family. */
export const TRACKING_TABLE = 'inet krater'

/**
 * Bits of a packet's mark in the fabric, which tell the bridge family what the kernel knows of the packet's connection:
 * it cannot ask itself. Before that is known, the mark names the project that sent it.
 */
export const PACKET = {
  /** Its connection has passed the filters that are in force. */
  allowed: '0x1',
  /** It begins a connection, or goes the way of the beginner in one that passed earlier filters. */
  begins: '0x2',
  /** It goes the other way in such a connection. */
  answers: '0x4',
} as const

const TABLE = `table ${TRACKING_TABLE} {
  map zones { typeof iifname : ct zone; }
  set numbers { typeof ct zone; }
  set shares { typeof ct mark . ${SHARE_KEY}; flags dynamic; }
  chain zone { type filter hook prerouting priority raw; policy accept; }
  chain state { type filter hook prerouting priority mangle; policy accept; }
  chain passed { type filter hook forward priority filter; policy accept; }
}
`

/**
 * The commands that make the table. Each bridge is a zone of its own, since tenants' addresses overlap. A connection
 * carries the generation of the filters that it passed: after a change of theirs, its next packet, whichever way it
 * goes, is judged anew. Pure.
 * @param generation not 0
 */
export function trackingCommands(generation: number): string {
  const number = `0x${(generation >>> 0).toString(16)}`
  const add = (chain: string, rule: string) => `add rule ${TRACKING_TABLE} ${chain} ${rule}`
  const set = (bit: string) => `meta mark set meta mark | ${bit}`
  return `${TABLE}${[
    ...['zone', 'state', 'passed'].map(chain => `flush chain ${TRACKING_TABLE} ${chain}`),
    add('zone', 'pkttype { broadcast, multicast } notrack'),
    add('zone', 'ct zone set iifname map @zones'),
    // A project has its share of connections, and so has each destination of what comes from outside.
    add('state', 'ct state new ct mark set meta mark'),
    add('state', 'ct state new meta mark 0x0 meta protocol ip ct mark set jhash ip daddr mod 16777216'),
    add('state', 'ct state new meta mark 0x0 meta protocol ip6 ct mark set jhash ip6 daddr mod 16777216'),
    ...shareRules('shares', 'ct mark').map(rule => add('state', rule)),
    add('state', `ct state new,untracked meta mark set ${PACKET.begins} return`),
    add('state', `ct state established,related ct mark ${number} ${set(PACKET.allowed)} return`),
    add('state', `ct state established,related ct direction original ${set(PACKET.begins)} return`),
    add('state', `ct state established,related ${set(PACKET.answers)}`),
    // The bridge's filters come before: what arrives here has passed them.
    add('passed', `ct mark != ${number} ct mark set ${number}`),
  ].join('\n')}\n`
}

/** The generation of a table that no filters have been applied to. */
export const FIRST_GENERATION = 1
