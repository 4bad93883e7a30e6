import { readFile, writeFile } from 'node:fs/promises'
import * as z from 'zod'
import { runTool } from '../ip-command.js'
import { nft } from '../nft-command.js'

/** What decides where machines on the public network get through this host. */
export type Outside = {
  /** The host's interface on the public network. */
  interfaceName: string
  /** The public network's subnets. */
  cidrs: readonly string[]
  /** Whether they reach what the host reaches, by its addresses. */
  enabled: boolean
  /** Networks that they never reach, besides those that belong to links. */
  denied: readonly string[]
}

type Family = 'ipv4' | 'ipv6'

const SWITCHES: Readonly<Record<Family, string>> = {
  ipv4: '/proc/sys/net/ipv4/ip_forward',
  ipv6: '/proc/sys/net/ipv6/conf/all/forwarding',
}

/** Cloud metadata is link-local; nothing of the others is anybody's service elsewhere. */
const NEVER = ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4', 'fe80::/10', 'ff00::/8']

const familyOf = (cidr: string): Family => (cidr.includes(':') ? 'ipv6' : 'ipv4')
const keyword = (cidr: string): 'ip' | 'ip6' => (familyOf(cidr) === 'ipv6' ? 'ip6' : 'ip')
const tableOf = (interfaceName: string): string => `inet ${interfaceName.replaceAll('-', '_')}_outside`

/** Whether this host forwards packets of a family. */
export const forwards = async (family: Family): Promise<boolean> =>
  (await readFile(SWITCHES[family], 'utf8').catch(() => '0')).trim() === '1'

/**
 * Whether the kernel learned a route from router advertisements. A host that forwards IPv6 stops to accept those, and
 * would lose its way out: then only the operator can decide.
 */
export async function followsRouters(): Promise<boolean> {
  return (await runTool(['ip', '-6', 'route', 'show', 'proto', 'ra'], '')).trim() !== ''
}

/**
 * Lets machines on the public network reach what this host reaches, or nothing. Their packets leave with the host's
 * addresses. Turns forwarding on where it is off; `closeOutside` turns that off again. Answers to whoever reaches a VIP
 * pass in any case. May be repeated.
 * @throws IpCommandError with nft's error output
 */
export async function guardOutside(outside: Outside): Promise<void> {
  await nft(null, outsideCommands(outside))
  if (!outside.enabled) return undoForwarding(outside.interfaceName)
  for (const family of new Set(outside.cidrs.map(familyOf))) {
    if ((await forwards(family)) || (family === 'ipv6' && (await followsRouters()))) continue
    // Noted first: whatever happens, it can be undone.
    await nft(null, `add element ${tableOf(outside.interfaceName)} made_forwarding { ${family} }\n`)
    await writeFile(SWITCHES[family], '1')
  }
}

/** Removes the rules, and turns forwarding off where Krater turned it on. No error if there are none. */
export async function closeOutside(interfaceName: string): Promise<void> {
  await undoForwarding(interfaceName)
  const table = tableOf(interfaceName)
  await nft(null, `table ${table}\ndelete table ${table}\n`)
}

/** Pure. */
export function outsideCommands({ interfaceName, cidrs, enabled, denied }: Outside): string {
  const table = tableOf(interfaceName)
  const chains = ['forward', 'from_public', 'postrouting']
  const refusals = [...NEVER, ...denied].map(cidr => `    ${keyword(cidr)} daddr ${cidr} drop\n`)
  const sources = cidrs.map(cidr => `    ${keyword(cidr)} saddr ${cidr} oifname != "${interfaceName}" masquerade\n`)
  return `table ${table} {
  set made_forwarding { type nf_proto; }
${chains.map(chain => `  chain ${chain} { }\n`).join('')}}
${chains.map(chain => `flush chain ${table} ${chain}\ndelete chain ${table} ${chain}\n`).join('')}table ${table} {
  chain from_public {
    ct state established,related accept
${enabled ? `${refusals.join('')}    oifname "${interfaceName}" drop\n    accept` : '    drop'}
  }
  chain forward {
    type filter hook forward priority filter; policy accept;
    iifname "${interfaceName}" goto from_public
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
${enabled ? sources.join('') : ''}  }
}
`
}

const listSchema = z.object({
  nftables: z.array(z.object({ set: z.object({ elem: z.array(z.string()).default([]) }) }).partial()),
})

async function undoForwarding(interfaceName: string): Promise<void> {
  const table = tableOf(interfaceName)
  const argv = ['nft', '-j', 'list', 'set', ...table.split(' '), 'made_forwarding'] as const
  const text = await runTool([...argv] as [string, ...string[]], '').catch(() => '{"nftables":[]}')
  const made = listSchema.parse(JSON.parse(text)).nftables.flatMap(({ set }) => set?.elem ?? [])
  for (const family of ['ipv4', 'ipv6'] as const) if (made.includes(family)) await writeFile(SWITCHES[family], '0')
  if (made.length > 0) await nft(null, `flush set ${table} made_forwarding\n`)
}
