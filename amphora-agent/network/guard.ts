import { run } from '../process/run.js'
import type { Desired } from '../protocol/desired.js'
import { FLOWS_PORT, HAPROXY_PEERS_PORT } from '../protocol/paths.js'
import { familyOf } from './address.js'
import { NetworkFailure } from './configure.js'

const TABLE = 'table inet krater_pair'
/** The protocol number, not the name: the machine may lack /etc/protocols. */
const VRRP = 112

/**
 * The nftables input: one transaction that replaces any existing rules. Only the other amphora may connect to the
 * ports for stick tables and flows on this one's own address, and speak VRRP: tenants have machines on the same network.
 * Replies from these ports pass. Pure.
 */
function guardRules(pair: Desired['pair']): string {
  const reset = `${TABLE}\ndelete ${TABLE}\n`
  if (pair === null) return reset
  const ip = familyOf(pair.address) === 4 ? 'ip' : 'ip6'
  const strangers = `${ip} saddr != { ${pair.peers.join(', ')} }`
  return `${reset}${TABLE} {
  chain input {
    type filter hook input priority filter; policy accept;
    iif lo accept
    ${ip} daddr ${pair.address} tcp dport { ${HAPROXY_PEERS_PORT}, ${FLOWS_PORT} } tcp flags & (syn | ack) == syn ${strangers} drop
    meta l4proto ${VRRP} ${strangers} drop
  }
}
`
}

/** @throws NetworkFailure with nftables' message */
export async function guard(pair: Desired['pair']): Promise<void> {
  const { status, stderr } = await run('nft', ['-f', '-'], { input: guardRules(pair) })
  if (status !== 0) throw new NetworkFailure(`nft: ${stderr.trim().slice(0, 1_000)}`)
}
