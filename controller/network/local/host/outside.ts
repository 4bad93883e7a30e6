import * as z from 'zod'
import { runTool } from '../ip-command.js'
import { nft } from '../nft-command.js'
import { type Family, prepareForwarding, turnForwardingOn, undoForwarding } from './forwarding.js'

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

/** Interfaces between which the host forwarded nothing before Krater turned forwarding on. */
type Apart = Readonly<Partial<Record<Family, readonly string[]>>>

/** Cloud metadata is link-local; nothing of the others is anybody's service elsewhere. */
const NEVER = ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4', 'fe80::/10', 'ff00::/8']

const FAMILIES = ['ipv4', 'ipv6'] as const
const familyOf = (cidr: string): Family => (cidr.includes(':') ? 'ipv6' : 'ipv4')
const keyword = (cidr: string): 'ip' | 'ip6' => (familyOf(cidr) === 'ipv6' ? 'ip6' : 'ip')

/** The nftables table with these rules. */
export const outsideTable = (interfaceName: string): string => `inet ${interfaceName.replaceAll('-', '_')}_outside`
const isOurs = (table: string): boolean => table.endsWith('_outside')

/**
 * Lets machines on the public network reach what this host reaches, or nothing. Their packets leave with the host's
 * addresses. Turns forwarding on where it is off, for them alone; `closeOutside` turns that off again. Answers to
 * whoever reaches a VIP pass in any case. May be repeated.
 * @throws IpCommandError with nft's error output
 */
export async function guardOutside(outside: Outside): Promise<void> {
  const families = outside.enabled ? [...new Set(outside.cidrs.map(familyOf))] : []
  const apart: { [family in Family]?: string[] } = {}
  const needed = await neededFamilies()
  for (const family of families) apart[family] = await prepareForwarding(family, needed.has(family))
  await nft(null, outsideCommands(outside, apart))
  for (const family of families) await turnForwardingOn(family)
  await undoUnused()
}

/**
 * Removes the rules, and turns forwarding off where Krater turned it on, unless others need it by now: another
 * installation, or software that translates addresses. No error if there are none.
 * @returns the tables of such software
 */
export async function closeOutside(interfaceName: string): Promise<string[]> {
  const table = outsideTable(interfaceName)
  await nft(null, `table ${table}\ndelete table ${table}\n`)
  return undoUnused()
}

/** Pure. */
export function outsideCommands({ interfaceName, cidrs, enabled, denied }: Outside, apart: Apart): string {
  const table = outsideTable(interfaceName)
  const chains = ['forward', 'from_public', 'postrouting']
  const refusals = [...NEVER, ...denied].map(cidr => `    ${keyword(cidr)} daddr ${cidr} drop\n`)
  const sources = cidrs.map(cidr => `    ${keyword(cidr)} saddr ${cidr} oifname != "${interfaceName}" masquerade\n`)
  const families = FAMILIES.filter(family => apart[family] !== undefined)
  const parted = families.flatMap(family => {
    const names = (apart[family] ?? []).filter(name => /^[\w.:@+-]+$/.test(name) && name !== interfaceName)
    const among = `{ ${names.map(name => `"${name}"`).join(', ')} }`
    return names.length < 2 ? [] : [`    meta nfproto ${family} iifname ${among} oifname ${among} drop\n`]
  })
  return `table ${table} {
  set forwards { type nf_proto; }
${chains.map(chain => `  chain ${chain} { }\n`).join('')}}
flush set ${table} forwards
${chains.map(chain => `flush chain ${table} ${chain}\ndelete chain ${table} ${chain}\n`).join('')}table ${table} {
  chain from_public {
    ct state established,related accept
${enabled ? `${refusals.join('')}    oifname "${interfaceName}" drop\n    accept` : '    drop'}
  }
  chain forward {
    type filter hook forward priority filter; policy accept;
    iifname "${interfaceName}" goto from_public
${parted.join('')}  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
${enabled ? sources.join('') : ''}  }
}
${families.length === 0 ? '' : `add element ${table} forwards { ${families.join(', ')} }\n`}`
}

const setsSchema = z.object({
  nftables: z.array(
    z
      .object({ set: z.object({ table: z.string(), name: z.string(), elem: z.array(z.unknown()).default([]) }) })
      .partial(),
  ),
})

/** Undoes what Krater did for families that no installation of this host needs any more. */
async function undoUnused(): Promise<string[]> {
  const needed = await neededFamilies()
  const others: string[] = []
  for (const family of FAMILIES) if (!needed.has(family)) others.push(...(await undoForwarding(family, isOurs)))
  return others
}

/** The families that an installation of this host needs forwarded. */
async function neededFamilies(): Promise<ReadonlySet<unknown>> {
  const { nftables } = setsSchema.parse(JSON.parse(await runTool(['nft', '-j', 'list', 'sets', 'inet'], '')))
  return new Set(
    nftables.flatMap(({ set }) => (set !== undefined && isOurs(set.table) && set.name === 'forwards' ? set.elem : [])),
  )
}
