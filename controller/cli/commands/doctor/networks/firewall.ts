import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import * as z from 'zod'

const run = promisify(execFile)

const exprSchema = z.record(z.string(), z.unknown())
const rulesetSchema = z.object({
  nftables: z.array(
    z
      .object({
        chain: z.object({
          family: z.string(),
          table: z.string(),
          name: z.string(),
          hook: z.string().optional(),
          policy: z.string().optional(),
        }),
        rule: z.object({ family: z.string(), table: z.string(), chain: z.string(), expr: z.array(exprSchema) }),
      })
      .partial(),
  ),
})

export type Ruleset = z.output<typeof rulesetSchema>['nftables']

/** All rules of this host's firewall, those of iptables' nftables variant among them. */
export async function readRuleset(): Promise<Ruleset> {
  const { stdout } = await run('nft', ['-j', 'list', 'ruleset'], { timeout: 10_000, maxBuffer: 256 * 1024 * 1024 })
  return parseRuleset(stdout)
}

/** @param json output of `nft -j list ruleset` */
export const parseRuleset = (json: string): Ruleset => rulesetSchema.parse(JSON.parse(json)).nftables

/** A chain that drops what it does not know, such as `ip filter FORWARD`, and the firewall that made it. */
export type Blocking = { chain: string; firewall: 'ufw' | 'firewalld' | 'iptables' | 'nftables' }

/** What a rule may contain besides a verdict and still apply to every packet. */
const UNCONDITIONAL = new Set(['counter', 'log', 'drop', 'reject'])

/**
 * The first chain at a hook that drops packets of an interface unless it knows them, in a table none of whose rules
 * names the interface or, for `input`, the port. Pure.
 */
export function blockingChain(
  ruleset: Ruleset,
  hook: 'forward' | 'input',
  known: { interfaceName: string; port?: number },
): Blocking | null {
  const rules = ruleset.flatMap(({ rule }) => rule ?? [])
  for (const chain of ruleset.flatMap(one => one.chain ?? [])) {
    if (chain.hook !== hook || !['ip', 'inet'].includes(chain.family)) continue
    const ofTable = rules.filter(({ family, table }) => family === chain.family && table === chain.table)
    const last = ofTable.filter(rule => rule.chain === chain.name).at(-1)
    const kinds = last?.expr.flatMap(expr => Object.keys(expr)) ?? []
    const dropsLast =
      kinds.some(kind => kind === 'drop' || kind === 'reject') && kinds.every(kind => UNCONDITIONAL.has(kind))
    if (chain.policy !== 'drop' && !dropsLast) continue
    if (ofTable.some(({ expr }) => expr.some(one => names(one, known)))) continue
    return { chain: `${chain.family} ${chain.table} ${chain.name}`, firewall: firewallOf(ruleset, chain) }
  }
  return null
}

const matchSchema = z.object({ match: z.object({ left: z.unknown(), right: z.unknown() }) })

/** Whether a part of a rule is about the interface or the port. */
function names(
  expr: Record<string, unknown>,
  { interfaceName, port }: { interfaceName: string; port?: number },
): boolean {
  const match = matchSchema.safeParse(expr).data?.match
  if (match === undefined) return false
  const [left, right] = [JSON.stringify(match.left), JSON.stringify(match.right)]
  if (/"[io]ifname"/.test(left)) return right.includes(`"${interfaceName}"`)
  return port !== undefined && left.includes('"dport"') && new RegExp(`\\b${port}\\b`).test(right)
}

function firewallOf(ruleset: Ruleset, { family, table }: { family: string; table: string }): Blocking['firewall'] {
  if (table === 'firewalld') return 'firewalld'
  if (family !== 'ip' || table !== 'filter') return 'nftables'
  return ruleset.some(({ chain }) => chain?.table === table && chain.name.startsWith('ufw-')) ? 'ufw' : 'iptables'
}

/** Commands that let an interface's packets through a firewall: those that are forwarded, or those for this host. Pure. */
export function passCommands(
  { chain, firewall }: Blocking,
  hook: 'forward' | 'input',
  interfaceName: string,
): string[] {
  const sides = hook === 'forward' ? (['in', 'out'] as const) : (['in'] as const)
  switch (firewall) {
    case 'firewalld':
      // The rules that Krater puts around the interface still hold.
      return [`firewall-cmd --permanent --zone=trusted --add-interface=${interfaceName} && firewall-cmd --reload`]
    case 'ufw':
      return sides.map(side => `ufw ${hook === 'forward' ? 'route ' : ''}allow ${side} on ${interfaceName}`)
    case 'iptables':
      return sides.map(side => `iptables -I ${hook.toUpperCase()} -${side[0]} ${interfaceName} -j ACCEPT`)
    case 'nftables':
      return sides.map(
        side => `nft insert rule ${chain} ${side === 'in' ? 'iifname' : 'oifname'} ${interfaceName} accept`,
      )
  }
}
