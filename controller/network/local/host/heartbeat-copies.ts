import { isIPv4 } from 'node:net'
import { nft } from '../nft-command.js'

/** Which heartbeats to copy, and where to. */
export type HeartbeatCopies = {
  /** This host's interface on the management network. */
  interfaceName: string
  /** Where heartbeats arrive there. */
  address: string
  port: number
  /** The address from which other hosts get the copies. */
  from: string
  /** Addresses of the other hosts' health managers, which listen on the same port. */
  to: readonly string[]
}

/** The nftables table with these rules. */
export const copiesTable = (interfaceName: string): string => `ip ${interfaceName.replaceAll('-', '_')}_copies`

/** Marks the copies on their way out: the number of the receiver is added. */
const MARK = 0x6b720000

/**
 * Lets the kernel send copies of all heartbeats that arrive at this host to the other hosts. It goes on when every
 * process of this host is gone, so that the others can tell whether the amphorae are gone too. May be repeated.
 * @throws IpCommandError with nft's error output
 */
export async function copyHeartbeats(copies: HeartbeatCopies): Promise<void> {
  await nft(null, copyCommands(copies))
}

/** Sends no more copies. No error if there were none. */
export async function stopCopies(interfaceName: string): Promise<void> {
  const table = copiesTable(interfaceName)
  await nft(null, `table ${table}\ndelete table ${table}\n`)
}

/**
 * A copy still has the original's destination, so its mark says for which host it is. It leaves as if this host had sent
 * it. Pure.
 */
export function copyCommands({ interfaceName, address, port, from, to }: HeartbeatCopies): string {
  const table = copiesTable(interfaceName)
  const receivers = to.filter(isIPv4).map((receiver, at) => ({ receiver, mark: `0x${(MARK + at + 1).toString(16)}` }))
  const heartbeat = `ip daddr ${address} udp dport ${port}`
  return `table ${table}
delete table ${table}
table ${table} {
  chain copy {
    ${receivers.map(({ receiver, mark }) => `meta mark set ${mark} dup to ${receiver}`).join('\n    ')}
    meta mark set 0
  }
  chain arriving {
    type filter hook prerouting priority raw; policy accept;
    iifname "${interfaceName}" ${heartbeat} jump copy
  }
  chain leaving {
    type filter hook output priority raw; policy accept;
    ${receivers.map(({ receiver, mark }) => `meta mark ${mark} ${heartbeat} ip daddr set ${receiver} ip saddr set ${from} meta mark set 0 accept`).join('\n    ')}
  }
}
`
}
