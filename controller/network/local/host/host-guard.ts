import { isIPv6 } from 'node:net'
import { nft } from '../nft-command.js'

/** A service on this host that machines on a network may reach at the leg's addresses. */
export type OpenPort = { protocol: 'tcp' | 'udp'; port: number }

/** The nftables table with the rules of a leg. */
export const guardTable = (interfaceName: string): string => `inet ${interfaceName.replaceAll('-', '_')}`

/**
 * Firewalls this host towards a network on which it has a leg: accepts only replies to the host's own connections, and
 * the open ports. Its addresses on other networks cannot be reached from there, nor the leg's addresses from elsewhere.
 * Call it before the leg exists; may be repeated.
 * @param isolated nothing is routed from or to the leg
 * @throws IpCommandError with nft's error output
 */
export async function guardHostLeg(
  interfaceName: string,
  { addresses, open, isolated }: { addresses: readonly string[]; open: readonly OpenPort[]; isolated: boolean },
): Promise<void> {
  const table = guardTable(interfaceName)
  const own = addresses.map(address => `${isIPv6(address) ? 'ip6' : 'ip'} daddr ${address}`)
  await nft(
    null,
    `table ${table}
delete table ${table}
table ${table} {
  chain input {
    type filter hook input priority filter; policy accept;
    iifname "${interfaceName}" goto from_leg
    ${own.map(daddr => `iifname != "lo" ${daddr} drop`).join('\n    ')}
  }
  chain from_leg {
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    ${own.flatMap(daddr => open.map(({ protocol, port }) => `${daddr} ${protocol} dport ${port} accept`)).join('\n    ')}
    drop
  }
  ${isolated ? isolation(interfaceName) : ''}
}
`,
  )
}

const isolation = (interfaceName: string): string => `chain forward {
    type filter hook forward priority filter; policy accept;
    iifname "${interfaceName}" drop
    oifname "${interfaceName}" drop
  }`

/** Removes the rules once the leg is gone. No error if there are none. */
export async function unguardHostLeg(interfaceName: string): Promise<void> {
  const table = guardTable(interfaceName)
  await nft(null, `table ${table}\ndelete table ${table}\n`)
}
