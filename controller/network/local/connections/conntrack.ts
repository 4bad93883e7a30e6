import { runTool } from '../ip-command.js'

/** One direction of a flow: a packet's addresses, and its ports or, in ICMP, type and code. */
export type Direction = {
  source: string
  destination: string
  sourcePort: number | null
  destinationPort: number | null
}

/** A connection as the kernel tracks it. */
export type Flow = {
  /** The number of its protocol in IP. */
  protocol: number
  /** As its first packet had it. */
  original: Direction
  /** As replies have it, before the kernel translates them back. */
  reply: Direction
  icmp: { type: number; code: number; id: number } | null
  mark: number
  zone: number
}

/** A filter of conntrack's command, such as `['--orig-dst', '198.51.100.4']`. */
export type FlowFilter = readonly string[]

const LINE = /^\S+\s+\d+\s+\S+\s+(?<protocol>\d+)\s/

/** Every connection that a namespace tracks, or those that the filter selects. */
export async function flowsOf(namespace: string, filter: FlowFilter = []): Promise<Flow[]> {
  const text = await conntrack(namespace, ['-L', '-o', 'extended', ...filter])
  return text.split('\n').flatMap(line => parseFlow(line) ?? [])
}

/** Forgets connections. No error if there are none: a later packet of theirs counts as a new one. */
export async function forgetFlows(namespace: string, filter: FlowFilter): Promise<void> {
  const isNamed = (separator: string) => filter.some(word => word.includes(separator))
  // conntrack takes one family at a time, that of the filter's addresses.
  const families = isNamed(':') ? ['ipv6'] : isNamed('.') ? ['ipv4'] : ['ipv4', 'ipv6']
  for (const family of families) await conntrack(namespace, ['-D', '-f', family, ...filter]).catch(ignoreNone)
}

const conntrack = (namespace: string, args: readonly string[]): Promise<string> =>
  runTool(['nsenter', `--net=/run/netns/${namespace}`, 'conntrack', ...args], '')

/** conntrack fails when it finds nothing to change. */
function ignoreNone(error: unknown): void {
  if (error instanceof Error && /\b0 flow entries have been/.test(error.message)) return
  throw error
}

/** Reads a line of conntrack's extended output; null for any other line. Pure. */
export function parseFlow(line: string): Flow | null {
  const protocol = LINE.exec(line)?.groups?.protocol
  const pairs = [...line.matchAll(/(?<= )([a-z]+)=(\S+)/g)].map(([, key = '', value = '']) => ({ key, value }))
  const starts = pairs.flatMap(({ key }, at) => (key === 'src' ? [at] : []))
  const [first, second] = starts
  if (protocol === undefined || first === undefined || second === undefined) return null
  const part = (from: number, to: number) => new Map(pairs.slice(from, to).map(({ key, value }) => [key, value]))
  const original = part(first, second)
  const rest = part(second, pairs.length)
  const type = original.get('type')
  return {
    protocol: Number(protocol),
    original: directionOf(original),
    reply: directionOf(rest),
    icmp:
      type === undefined
        ? null
        : { type: Number(type), code: Number(original.get('code') ?? 0), id: Number(original.get('id') ?? 0) },
    mark: Number(rest.get('mark') ?? 0),
    zone: Number(rest.get('zone') ?? original.get('zone') ?? 0),
  }
}

function directionOf(values: ReadonlyMap<string, string>): Direction {
  const port = (key: string) => (values.has(key) ? Number(values.get(key)) : null)
  return {
    source: values.get('src') ?? '',
    destination: values.get('dst') ?? '',
    sourcePort: port('sport'),
    destinationPort: port('dport'),
  }
}
