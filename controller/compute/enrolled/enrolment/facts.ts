import * as z from 'zod'
import { LINK } from '../link.js'
import { EnrolmentError } from './enrolment-error.js'

/** An interface of a host, as facts.sh saw it. */
export type HostInterface = {
  name: string
  mac: string
  /** With prefix lengths. */
  addresses: readonly string[]
  /** It belongs to a bridge or a bond, or something is built on it, such as a VLAN. */
  isShared: boolean
  hasCarrier: boolean
}

/** What there is on a host, before anything is changed. */
export type HostFacts = {
  system: string
  version: string
  architecture: string
  hostname: string
  /** Its clock, in seconds since 1970. */
  time: number
  usesSystemd: boolean
  memoryKib: number
  /** Free below /opt. */
  diskKib: number
  programs: ReadonlySet<string>
  hasNamespaces: boolean
  /** `INSTALLATION HOST`: who has enrolled it, if anybody. */
  owner: string | null
  hasAccount: boolean
  /** Paths of ours that exist. */
  paths: readonly string[]
  readsSshdSnippets: boolean
  /** Of haproxy and keepalived, those that run in the host's own network, and those that start with it. */
  running: readonly string[]
  enabled: readonly string[]
  /** Ports that the forwarder needs and a program of the host has on all addresses, such as `udp 5555`. */
  portsInUse: readonly string[]
  /** The network between a host and its amphora if the host has it otherwise; null if not. */
  linkTaken: string | null
  /** The interface that leads to the controller, and those with a default route. */
  clientRoute: string
  defaultRoutes: readonly string[]
  interfaces: readonly HostInterface[]
}

const word = z.string().regex(/^[\w.@:-]{1,63}$/)
const count = z.coerce.number().int().nonnegative()

const LINE = /^([a-zA-Z_.]+) (.*)$/
const MAX_LINES = 2_000

/**
 * Reads what facts.sh prints. A host is not trusted before it is enrolled: every value is checked.
 * @throws EnrolmentError
 */
export function parseFacts(text: string): HostFacts {
  const lines = text.split('\n').filter(Boolean)
  if (lines.at(-1) !== 'end' || lines.length > MAX_LINES) throw unreadable('its list of facts is incomplete')
  const values = new Map<string, string[]>()
  for (const line of lines.slice(0, -1)) {
    const [, name, value] = LINE.exec(line) ?? []
    if (name === undefined || value === undefined) throw unreadable(`"${line.slice(0, 60)}" is no fact`)
    values.set(name, [...(values.get(name) ?? []), value])
  }
  const all = (name: string) => values.get(name) ?? []
  const first = (name: string) => all(name)[0] ?? ''
  const read = <T>(schema: z.ZodType<T>, name: string): T => {
    const parsed = schema.safeParse(first(name))
    if (!parsed.success) throw unreadable(`its ${name} is "${first(name).slice(0, 60)}"`)
    return parsed.data
  }
  const words = (name: string) =>
    all(name)
      .filter(Boolean)
      .map(value => {
        if (!word.safeParse(value).success) throw unreadable(`its ${name} is "${value.slice(0, 60)}"`)
        return value
      })
  return {
    system: read(word, 'system.ID'),
    version: first('system.VERSION_ID'),
    architecture: read(word, 'architecture'),
    hostname: read(word, 'hostname'),
    time: read(count, 'time'),
    usesSystemd: first('init') === 'systemd',
    memoryKib: read(count, 'memory'),
    diskKib: read(count, 'disk'),
    programs: new Set(words('program')),
    hasNamespaces: first('namespaces') === 'yes',
    owner: first('owner') === '' ? null : first('owner'),
    hasAccount: all('account').includes('krater'),
    paths: all('path').filter(path => /^[\w/.-]+$/.test(path)),
    readsSshdSnippets: first('sshd.includes') === 'yes',
    running: [...new Set(words('runs'))],
    enabled: words('enabled'),
    portsInUse: all('port').filter(port => /^(udp|tcp) \d{1,5}$/.test(port)),
    linkTaken: all('taken').some(Boolean) ? LINK : null,
    clientRoute: read(word, 'route.client'),
    defaultRoutes: words('route.default'),
    interfaces: readInterfaces(all('interface'), all('address')),
  }
}

const interfaceLine = z
  .tuple([word, z.string().regex(/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/)])
  .rest(z.enum(['master', 'below', 'dark']))
const addressLine = z.tuple([word, z.union([z.cidrv4(), z.cidrv6()])])

function readInterfaces(interfaces: readonly string[], addresses: readonly string[]): HostInterface[] {
  const found = addresses.map(line => {
    const parsed = addressLine.safeParse(line.split(' '))
    if (!parsed.success) throw unreadable(`"${line.slice(0, 60)}" is no address of an interface`)
    return parsed.data
  })
  return interfaces.map(line => {
    const parsed = interfaceLine.safeParse(line.split(' '))
    if (!parsed.success) throw unreadable(`"${line.slice(0, 60)}" is no interface`)
    const [name, mac, ...flags] = parsed.data
    return {
      name,
      mac,
      addresses: found.flatMap(([device, address]) => (device === name ? [address] : [])),
      isShared: flags.includes('master') || flags.includes('below'),
      hasCarrier: !flags.includes('dark'),
    }
  })
}

const unreadable = (why: string) =>
  new EnrolmentError(`The host cannot be understood: ${why}. Nothing was changed there.`)
