import { createHash } from 'node:crypto'
import * as z from 'zod'
import type { PhysicalNetworks } from '../../physical-networks.js'
import type { Fabric } from '../fabric.js'
import { IpCommandError, ip, ipBatch, runTool } from '../ip-command.js'
import { bridgeOf } from '../names.js'
import { nft } from '../nft-command.js'
import { framesTable } from '../uplink-frames.js'
import {
  type AdmittedVlans,
  type DetailedLink,
  filterLines,
  filtersShown,
  framesCommands,
  ingressFilters,
  isUp,
  type Problem,
  type ProviderNetwork,
  planUplinks,
  type Uplink,
} from './plan.js'

const MAX_ATTEMPTS = 3

/**
 * Joins networks to physical networks, and parts those that no longer lead there. Looks first, so it may be repeated,
 * interrupted at any step and run after anything else changed the host. The host's interfaces keep their addresses,
 * routes and names; an interface becomes promiscuous, since the MAC addresses of machines are not its own.
 */
export class Uplinks {
  readonly #fabric: Fabric
  /** What the kernel showed of a table right after it was made, to see that it is still the same. */
  readonly #shown = new Map<string, string>()
  /** The interfaces that tables made promiscuous, in case the tables are lost. */
  readonly #promiscuous = new Map<string, readonly string[]>()

  constructor(fabric: Fabric) {
    this.#fabric = fabric
  }

  /**
   * @param networks reads the networks; it is called after the look at what is there, so that no port is missed
   * @returns the networks that do not lead anywhere, and why
   * @throws IpCommandError if the kernel does not tell what is there
   */
  async ensure(
    networks: () => Promise<readonly ProviderNetwork[]>,
    physicalNetworks: PhysicalNetworks,
  ): Promise<Problem[]> {
    const { instance, namespace } = this.#fabric
    const present = await this.#present()
    const admitted = new Map<string, readonly string[]>()
    for (const hostEnd of present.hostEnds) admitted.set(hostEnd, await elementsOf(hostEnd, 'ours'))
    const wanted = await networks()
    if (wanted.length === 0 && present.hostEnds.length === 0 && present.fabricEnds.length === 0) return []
    const hostLinks = await detailedLinks(null)
    const filtered = await admittedVlans(hostLinks)
    const place = { physicalNetworks, hostLinks, filtered, instance, bridgeOf }
    const { uplinks, problems, kept } = planUplinks(wanted, place)
    for (const hostEnd of present.hostEnds) if (!kept.has(hostEnd)) await this.#removeHostEnd(hostEnd)
    const left = present.fabricEnds.filter(name => !kept.has(name)).map(name => `link delete dev ${name}`)
    if (left.length > 0) await ipBatch(namespace, left)
    for (const uplink of uplinks) {
      // One that cannot be made must not hold up the others.
      const failure = await this.#ensureUplink(uplink, admitted).catch((error: unknown) => error)
      if (failure === undefined) continue
      if (!(failure instanceof IpCommandError)) throw failure
      const { id: networkId, physicalNetwork } = uplink.network
      problems.push({ networkId, physicalNetwork, reason: failure.message, remedy: 'krater doctor' })
    }
    return problems
  }

  /** Removes all uplinks of the instance, and what they changed on the host. */
  async remove(): Promise<void> {
    const { hostEnds, fabricEnds } = await this.#present()
    for (const hostEnd of hostEnds) await this.#removeHostEnd(hostEnd)
    const left = fabricEnds.map(name => `link delete dev ${name}`)
    if (left.length > 0) await ipBatch(this.#fabric.namespace, left)
  }

  /** The uplinks' ends, also those of which only a table is left. */
  async #present(): Promise<{ hostEnds: string[]; fabricEnds: string[] }> {
    const name = new RegExp(`^kr${this.#fabric.instance}[-_][0-9a-f]{6}$`)
    const tables = await tablesOfHost()
    const links = (await detailedLinks(null)).map(({ ifname }) => ifname)
    const inFabric = await detailedLinks(this.#fabric.namespace).catch(() => [])
    const hostEnds = [...links, ...tables].filter(one => name.test(one)).map(one => one.replace('_', '-'))
    return {
      hostEnds: [...new Set(hostEnds)],
      fabricEnds: inFabric.map(({ ifname }) => ifname).filter(ifname => /^u[0-9a-f]{11}$/.test(ifname)),
    }
  }

  async #removeHostEnd(hostEnd: string): Promise<void> {
    this.#promiscuous.delete(hostEnd)
    await removeHostEnd(hostEnd)
  }

  async #ensureUplink(uplink: Uplink, admitted: ReadonlyMap<string, readonly string[]>): Promise<void> {
    const { network, link } = uplink
    await this.#fabric.ensureBridge(network.id, network.mtu)
    if (uplink.kind === 'vlan') return this.#ensureVlan(uplink)
    const { hostEnd } = uplink
    // It led to an interface before.
    if (uplink.kind === 'bridge' && admitted.has(hostEnd) && (await tableShown(hostEnd)) !== '[]') {
      await this.#removeHostEnd(hostEnd)
    }
    await this.#ensurePair(uplink)
    if (uplink.kind === 'bridge') return
    await ensureFilters(hostEnd, link)
    await this.#ensureFrames(uplink, admitted.get(hostEnd) ?? [])
    const lost = this.#promiscuous.get(hostEnd) ?? []
    this.#promiscuous.set(hostEnd, await ensurePromiscuous(hostEnd, link, lost))
    await ip(['link', 'set', 'dev', hostEnd, 'up'])
  }

  /** The veth pair: with the fabric's end on the network's bridge, the host's end on the host's bridge if it is one. */
  async #ensurePair({ network, bridge, fabricEnd, hostEnd, link, kind }: Uplink & { hostEnd: string }): Promise<void> {
    const { namespace } = this.#fabric
    const master = kind === 'bridge' ? link.ifname : undefined
    const join = master === undefined ? 'nomaster' : `master ${master} up`
    const look = async () => {
      const [host, inside] = await Promise.all([linkOf(null, hostEnd), linkOf(namespace, fabricEnd)])
      const paired = host !== null && inside?.link_index === host.ifindex && host.link_index === inside.ifindex
      const joined = inside?.master === bridge && isUp(inside) && host?.master === master
      const complete = paired && joined && host.mtu === link.mtu && (kind === 'frames' || isUp(host))
      return { host, inside, paired, complete }
    }
    let failure: IpCommandError | null = null
    for (let attempt = 0; ; attempt++) {
      const { host, inside, paired, complete } = await look()
      if (complete) return
      if (attempt === MAX_ATTEMPTS) throw failure ?? new IpCommandError(`The uplink ${hostEnd} did not come up`)
      if (!paired && inside !== null) await ipBatch(namespace, [`link delete dev ${fabricEnd}`])
      const peer = `name ${fabricEnd} netns ${namespace}`
      const made = `link add name ${hostEnd} address ${highMacAddress(hostEnd)} type veth peer ${peer}`
      const unmade = await ipBatch(null, [
        ...(paired || host === null ? [] : [`link delete dev ${hostEnd}`]),
        ...(paired ? [] : [made]),
        `link set dev ${hostEnd} addrgenmode none mtu ${link.mtu} alias uplink:${network.id} ${join}`,
      ])
      const unjoined = await ipBatch(namespace, [joinLine(fabricEnd, { network, bridge, link })])
      failure = unmade ?? unjoined
    }
  }

  async #ensureVlan({ network, bridge, fabricEnd, link, id }: Uplink & { kind: 'vlan' }): Promise<void> {
    const { namespace } = this.#fabric
    let failure: IpCommandError | null = null
    for (let attempt = 0; ; attempt++) {
      const present = await linkOf(namespace, fabricEnd)
      const fits = present?.linkinfo?.info_data?.id === id && present.link_index === link.ifindex
      if (present !== null && fits && present.master === bridge && isUp(present)) return
      if (attempt === MAX_ATTEMPTS) {
        throw new IpCommandError(
          `VLAN ${id} of ${link.ifname} did not come up: ${failure?.message ?? 'its device is down'}`,
        )
      }
      if (present !== null && !fits) await ipBatch(namespace, [`link delete dev ${fabricEnd}`])
      const made = `link add link ${link.ifname} name ${fabricEnd} netns ${namespace} address ${highMacAddress(fabricEnd)} type vlan id ${id}`
      const unmade = fits ? null : await ipBatch(null, [made])
      const unjoined = await ipBatch(namespace, [joinLine(fabricEnd, { network, bridge, link })])
      failure = unmade ?? unjoined
    }
  }

  /** The rules at the host's interface, and the MAC addresses of the network's ports. */
  async #ensureFrames(uplink: Uplink & { hostEnd: string }, admitted: readonly string[]): Promise<void> {
    const { hostEnd, network, link } = uplink
    const shown = async () => JSON.stringify([link.ifindex, link.ifname, link.address, await tableShown(hostEnd)])
    if (this.#shown.get(hostEnd) !== (await shown())) {
      await nft(null, framesCommands(uplink))
      this.#shown.set(hostEnd, await shown())
    }
    const wanted = new Set(network.macAddresses)
    const [missing, gone] = [
      network.macAddresses.filter(address => !admitted.includes(address)),
      admitted.filter(address => !wanted.has(address)),
    ]
    const set = `${framesTable(hostEnd)} ours`
    const changes = [
      ...(missing.length === 0 ? [] : [`add element ${set} { ${missing.join(', ')} }\n`]),
      ...(gone.length === 0 ? [] : [`delete element ${set} { ${gone.join(', ')} }\n`]),
    ]
    if (changes.length > 0) await nft(null, changes.join(''))
  }
}

const linkSchema: z.ZodType<DetailedLink> = z.object({
  ifindex: z.number(),
  ifname: z.string(),
  flags: z.array(z.string()),
  mtu: z.number(),
  address: z.string().default(''),
  link_type: z.string().optional(),
  master: z.string().optional(),
  ifalias: z.string().optional(),
  link_index: z.number().optional(),
  linkinfo: z
    .object({
      info_kind: z.string().optional(),
      info_data: z.object({ id: z.number(), vlan_filtering: z.number() }).partial().optional(),
    })
    .optional(),
})

/** The interfaces of a namespace with their kinds; null is the host's. */
export async function detailedLinks(namespace: string | null, ...which: readonly string[]): Promise<DetailedLink[]> {
  const where = namespace === null ? [] : ['-n', namespace]
  const text = await ip([...where, '-details', '-json', 'link', 'show', ...which])
  return z.array(linkSchema).parse(JSON.parse(text))
}

async function linkOf(namespace: string | null, name: string): Promise<DetailedLink | null> {
  const found = await detailedLinks(namespace, 'dev', name).catch(() => [])
  return found[0] ?? null
}

const vlansSchema = z.array(
  z.object({
    ifname: z.string(),
    vlans: z.array(z.object({ vlan: z.number(), vlanEnd: z.number().optional() })),
  }),
)

/** The VLANs that this host itself gets from its bridges which filter VLANs, by bridge. */
export async function admittedVlans(hostLinks: readonly DetailedLink[]): Promise<Map<string, AdmittedVlans>> {
  const filtering = hostLinks.filter(({ linkinfo }) => linkinfo?.info_data?.vlan_filtering === 1)
  const admitted = new Map<string, AdmittedVlans>()
  for (const { ifname } of filtering) {
    const text = await runTool(['bridge', '-json', 'vlan', 'show', 'dev', ifname], '')
    const vlans = vlansSchema.parse(JSON.parse(text)).flatMap(one => one.vlans)
    admitted.set(
      ifname,
      vlans.map(({ vlan, vlanEnd = vlan }) => ({ first: vlan, last: vlanEnd })),
    )
  }
  return admitted
}

/** A bridge takes the lowest MAC address of its ports: this one never changes that of the host's bridge. */
function highMacAddress(name: string): string {
  const digest = createHash('sha256').update(`krater uplink ${name}`).digest('hex')
  return `fe${digest.slice(0, 10).replace(/../g, ':$&')}`
}

const joinLine = (end: string, { network, bridge, link }: Pick<Uplink, 'network' | 'bridge' | 'link'>): string =>
  `link set dev ${end} addrgenmode none mtu ${link.mtu} alias uplink:${network.id} master ${bridge} up`

/** May be interrupted: the table, which knows what to undo, goes after that. */
async function removeHostEnd(hostEnd: string): Promise<void> {
  const present = new Set((await detailedLinks(null)).map(({ ifname }) => ifname))
  for (const name of await elementsOf(hostEnd, 'made_promiscuous')) {
    if (present.has(name)) await ip(['link', 'set', 'dev', name, 'promisc', 'off'])
  }
  const table = framesTable(hostEnd)
  await nft(null, `table ${table}\ndelete table ${table}\n`)
  if (present.has(hostEnd)) await ip(['link', 'delete', 'dev', hostEnd])
}

async function ensureFilters(hostEnd: string, link: DetailedLink): Promise<void> {
  const filters = ingressFilters(link)
  const show = () => runTool(['tc', 'filter', 'show', 'dev', hostEnd, 'ingress'], '').catch(() => '')
  const matches = async () => JSON.stringify(filtersShown(await show())) === JSON.stringify(filters)
  if (await matches()) return
  const failure = await runTool(['tc', '-force', '-batch', '-'], `${filterLines(hostEnd, filters).join('\n')}\n`).catch(
    (error: unknown) => error,
  )
  if (await matches()) return
  throw failure instanceof Error ? failure : new IpCommandError(`The filters of ${hostEnd} were not made`)
}

/**
 * Notes it before: whatever happens, removing the uplink undoes it. Undoes it for an interface that served before.
 * @param noted what was noted before, even if the note was lost since
 * @returns what is noted now
 */
async function ensurePromiscuous(
  hostEnd: string,
  { ifname, flags }: DetailedLink,
  noted: readonly string[],
): Promise<string[]> {
  const set = `${framesTable(hostEnd)} made_promiscuous`
  const present = await elementsOf(hostEnd, 'made_promiscuous')
  for (const other of present.filter(name => name !== ifname)) {
    if ((await linkOf(null, other)) !== null) await ip(['link', 'set', 'dev', other, 'promisc', 'off'])
    await nft(null, `delete element ${set} { ${/^\d+$/.test(other) ? other : `"${other}"`} }\n`)
  }
  const isPromiscuous = flags.includes('PROMISC')
  const isMade = !isPromiscuous || present.includes(ifname) || noted.includes(ifname)
  if (isMade && !present.includes(ifname)) await nft(null, `add element ${set} { "${ifname}" }\n`)
  if (!isPromiscuous) await ip(['link', 'set', 'dev', ifname, 'promisc', 'on'])
  return isMade ? [ifname] : []
}

const tableSchema = z.object({ nftables: z.array(z.record(z.string(), z.unknown())) })
const setSchema = z.object({ name: z.string(), elem: z.array(z.coerce.string()).default([]) })

async function listTable(hostEnd: string): Promise<Record<string, unknown>[]> {
  const [family = '', name = ''] = framesTable(hostEnd).split(' ')
  const text = await runTool(['nft', '-j', 'list', 'table', family, name], '').catch(() => '{"nftables":[]}')
  return tableSchema.parse(JSON.parse(text)).nftables
}

/** Chains and rules as the kernel has them, without the elements of sets. */
const tableShown = async (hostEnd: string): Promise<string> =>
  JSON.stringify(
    (await listTable(hostEnd)).filter(({ chain, rule }) => chain ?? rule),
    (key, value: unknown) => (key === 'handle' ? undefined : value),
  )

async function elementsOf(hostEnd: string, name: string): Promise<string[]> {
  const sets = (await listTable(hostEnd)).flatMap(({ set }) => setSchema.safeParse(set).data ?? [])
  return sets.find(set => set.name === name)?.elem ?? []
}

const tablesSchema = z.object({ nftables: z.array(z.object({ table: z.object({ name: z.string() }) }).partial()) })

/** Names of the tables at the host's interfaces. */
async function tablesOfHost(): Promise<string[]> {
  const text = await runTool(['nft', '-j', 'list', 'tables', 'netdev'], '')
  return tablesSchema.parse(JSON.parse(text)).nftables.flatMap(({ table }) => (table === undefined ? [] : [table.name]))
}
