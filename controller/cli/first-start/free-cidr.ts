import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import ipaddr from 'ipaddr.js'
import { ConfigurationError } from '../../options/configuration-error.js'

const run = promisify(execFile)

/**
 * Finds an IPv4 /16 that overlaps no route of this machine. Each instance starts the search elsewhere, so that two
 * instances that start at the same time choose different ones.
 */
export async function chooseFreeCidr(instance: string): Promise<string> {
  const { stdout } = await run('ip', ['-j', '-4', 'route', 'show', 'table', 'all'], { timeout: 10_000 })
  const routes = JSON.parse(stdout) as { dst: string }[]
  return freeCidr(
    Number.parseInt(instance, 16),
    routes.map(route => route.dst),
  )
}

/**
 * The first of 10.64.0.0/16 ... 10.254.0.0/16, counted from `seed` with wrap-around, that overlaps none of
 * `used`. Pure.
 * @param used CIDRs or addresses; ignores anything else, such as "default"
 * @throws ConfigurationError when all are taken
 */
export function freeCidr(seed: number, used: readonly string[]): string {
  const taken = used.map(parse).filter(range => range !== null)
  const candidates = Array.from({ length: 191 }, (_, step) => 64 + ((seed + step) % 191))
  const free = candidates.find(second => {
    const candidate: Range = [ipaddr.IPv4.parse(`10.${second}.0.0`), 16]
    return !taken.some(range => overlap(candidate, range))
  })
  if (free === undefined) {
    throw new ConfigurationError(
      'No 10.x.0.0/16 is free on this machine: every one overlaps a route. Set network.cidr to a free IPv4 /16.',
    )
  }
  return `10.${free}.0.0/16`
}

type Range = [ipaddr.IPv4, number]

function parse(text: string): Range | null {
  const cidr = text.includes('/') ? text : `${text}/32`
  if (!ipaddr.IPv4.isValidCIDR(cidr)) return null
  return ipaddr.IPv4.parseCIDR(cidr)
}

function overlap(a: Range, b: Range): boolean {
  const shorter = Math.min(a[1], b[1])
  return a[0].match(b[0], shorter)
}
