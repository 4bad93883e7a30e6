import { readdirSync, readFileSync } from 'node:fs'
import { outputIn } from './lan.js'

const COMMANDS = {
  links: ['ip', '-details', '-oneline', 'link', 'show'],
  addresses: ['ip', '-oneline', 'address', 'show'],
  routes: ['ip', '-4', '-oneline', 'route', 'show', 'table', 'all'],
  routes6: ['ip', '-6', '-oneline', 'route', 'show', 'table', 'all'],
  rules: ['ip', 'rule', 'show'],
  rules6: ['ip', '-6', 'rule', 'show'],
  qdiscs: ['tc', 'qdisc', 'show'],
  tables: ['nft', 'list', 'tables'],
} satisfies Record<string, [string, ...string[]]>

const SYSCTLS = /^(forwarding|accept_ra|accept_redirects|rp_filter|proxy_arp|arp_\w+)$/

/** Interfaces and tables that other tests of the run make meanwhile. */
const OTHERS = /\b(lan|kr|kt|kc|kv|b)[0-9a-f]{5,6}(?![0-9a-f])/
const CLOCKS = / (valid_lft|preferred_lft|expires) \S+/g

/**
 * What of this host Krater must leave as it found it: links with their promiscuity, addresses, routes, rules, queueing
 * disciplines, firewall tables, settings. For comparison.
 * @param own parts of names which belong to the test; what other tests make is left out
 */
export async function hostNetwork(...own: readonly string[]): Promise<Record<string, readonly string[]>> {
  const isMeant = (line: string) => !OTHERS.test(line) || own.some(text => line.includes(text))
  const entries = Object.entries(COMMANDS).map(async ([what, argv]) => {
    const lines = (await outputIn(null, ...(argv as [string, ...string[]]))).split('\n')
    return [
      what,
      lines
        .filter(isMeant)
        .map(line => line.replace(CLOCKS, ''))
        .sort(),
    ] as const
  })
  return { ...Object.fromEntries(await Promise.all(entries)), settings: settings().filter(isMeant) }
}

function settings(): string[] {
  const folders = ['ipv4', 'ipv6'].flatMap(family =>
    readdirSync(`/proc/sys/net/${family}/conf`).map(name => `${family}/conf/${name}`),
  )
  return folders.flatMap(folder =>
    readdirSync(`/proc/sys/net/${folder}`).flatMap(name => {
      if (!SYSCTLS.test(name)) return []
      return [`${folder}/${name} ${readFileSync(`/proc/sys/net/${folder}/${name}`, 'utf8').trim()}`]
    }),
  )
}
