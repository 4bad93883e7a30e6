import { networkInterfaces } from 'node:os'
import { run } from '../process/run.js'
import type { Desired } from '../protocol/desired.js'
import { canonical } from './address.js'

/** The kernel's network as `ip -json` shows it, limited to what planning needs. */
export type Observed = {
  links: { name: string; mac: string; mtu: number; up: boolean; carrier: boolean }[]
  addresses: { device: string; family: 4 | 6; address: string; prefix: number }[]
  /** Routes of protocol static, which only we write. `table` is `main` or a number as text. */
  routes: {
    device: string
    family: 4 | 6
    destination: string
    gateway: string | null
    table: string
    source: string | null
  }[]
  /** Destinations of the routes in the main table that the kernel created, one for each address. */
  connected: { device: string; destination: string }[]
  /** Rules by source address, or by mark. */
  rules: ({ family: 4 | 6; priority: number; table: string } & ({ source: string } | { mark: string }))[]
}

type Link = { ifname: string; address?: string; mtu: number; flags: string[] }
type Address = Link & { addr_info: { family: string; local?: string; prefixlen: number; scope: string }[] }
type Route = { dst: string; gateway?: string; dev?: string; table?: string; protocol?: string; prefsrc?: string }
type Rule = { priority: number; src?: string; table?: string; fwmark?: string }

export async function observeLinks(): Promise<Observed['links']> {
  const [links = []] = await show<[Link[]]>([], ['link show'])
  return linksOf(links)
}

const linksOf = (links: readonly Link[]): Observed['links'] =>
  links.map(({ ifname, address, mtu, flags }) => ({
    name: ifname,
    mac: address ?? '',
    mtu,
    up: flags.includes('UP'),
    carrier: flags.includes('LOWER_UP'),
  }))

/** @throws Error if `ip` fails */
export async function observeNetwork(): Promise<Observed> {
  const [[addresses = []], ...perFamily] = await Promise.all([
    show<[Address[]]>([], ['addr show']),
    ...([4, 6] as const).map(async family => {
      const [routes = [], rules = []] = await show<[Route[], Rule[]]>(
        [`-${family}`],
        ['route show table all', 'rule show'],
      )
      return { family, routes, rules }
    }),
  ])
  return {
    links: linksOf(addresses),
    addresses: addresses.flatMap(({ ifname, addr_info }) =>
      addr_info
        .filter(({ local, scope }) => local !== undefined && scope !== 'link')
        .map(({ family, local, prefixlen }) => ({
          device: ifname,
          family: family === 'inet6' ? (6 as const) : (4 as const),
          address: local ?? '',
          prefix: prefixlen,
        })),
    ),
    routes: perFamily.flatMap(({ family, routes }) =>
      routes
        .filter(({ protocol, dev }) => protocol === 'static' && dev !== undefined)
        .map(({ dev, dst, gateway, table, prefsrc }) => ({
          device: dev ?? '',
          family,
          destination: dst === 'default' ? (family === 4 ? '0.0.0.0/0' : '::/0') : withPrefix(dst, family),
          gateway: gateway ?? null,
          table: table ?? 'main',
          source: prefsrc ?? null,
        })),
    ),
    connected: perFamily.flatMap(({ family, routes }) =>
      routes
        .filter(({ protocol, dev, table }) => protocol === 'kernel' && dev !== undefined && table === undefined)
        .map(({ dev, dst }) => ({ device: dev ?? '', destination: withPrefix(dst, family) })),
    ),
    rules: perFamily.flatMap(({ family, rules }) =>
      rules
        .filter(({ src, fwmark }) => fwmark !== undefined || (src !== undefined && src !== 'all'))
        .map(({ priority, src, table, fwmark }) => ({
          family,
          priority,
          table: table ?? 'main',
          ...(fwmark === undefined ? { source: src ?? '' } : { mark: fwmark }),
        })),
    ),
  }
}

const withPrefix = (destination: string, family: 4 | 6): string =>
  destination.includes('/') ? destination : `${destination}/${family === 4 ? 32 : 128}`

/** Runs several commands in one process. @returns the output of each */
async function show<Shown extends unknown[]>(options: string[], commands: string[]): Promise<Partial<Shown>> {
  const { status, stdout, stderr } = await run('ip', ['-json', ...options, '-batch', '-'], {
    input: `${commands.join('\n')}\n`,
  })
  if (status !== 0) throw new Error(`ip ${commands.join(', ')}: ${stderr.trim().slice(0, 500)}`)
  return stdout
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line)) as Partial<Shown>
}

/** A single amphora holds all VIPs of its desired state; in a pair, keepalived decides. */
export function holdsVip({ interfaces, keepalived }: Pick<Desired, 'interfaces' | 'keepalived'>): boolean {
  const vips = interfaces.flatMap(({ vips }) => vips)
  if (keepalived === null) return vips.length > 0
  const held = new Set(Object.values(networkInterfaces()).flatMap(list => (list ?? []).map(({ address }) => address)))
  return vips.some(({ address }) => held.has(canonical(address)))
}
