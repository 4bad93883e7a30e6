import { nft } from '../nft-command.js'

/** The group (`ip link`) of ends in the host's network namespace. */
const GROUP = 27_506

/** Words of `ip link set` for such an end. */
export const END_WORDS = `group ${GROUP}`

const tables = (instance: string) => [`inet kr${instance}_ends`, `arp kr${instance}_ends`] as const

/**
 * Keeps what comes in at ends from the host's own network stack: a switch in userspace gets a copy, so the host would
 * answer ARP, and take packets, that are for others. Call it before there are ends; may be repeated.
 * @throws IpCommandError with nft's error output
 */
export async function guardEnds(instance: string): Promise<void> {
  const [ip, arp] = tables(instance)
  await nft(
    null,
    `table ${ip}
delete table ${ip}
table ${ip} {
  chain prerouting {
    type filter hook prerouting priority raw; policy accept;
    iifgroup ${GROUP} drop
  }
}
table ${arp}
delete table ${arp}
table ${arp} {
  chain input {
    type filter hook input priority filter; policy accept;
    iifgroup ${GROUP} drop
  }
}
`,
  )
}

/** Removes the rules once the ends are gone. No error if there are none. */
export async function unguardEnds(instance: string): Promise<void> {
  await nft(
    null,
    tables(instance)
      .map(table => `table ${table}\ndelete table ${table}\n`)
      .join(''),
  )
}
