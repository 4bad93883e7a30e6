import { createHash } from 'node:crypto'
import { OvsdbUnreachable } from '../../ovsdb/errors.js'
import { END_WORDS, guardEnds, unguardEnds } from './host/ends-guard.js'
import { IpCommandError, interfaceAddresses, ipBatch, type Link, linkNamed, links, runTool } from './ip-command.js'
import { bridgeOf, interfaceOf, isBridge, legOf } from './names.js'
import { ensureNamespace, namespaceExists, removeNamespace } from './namespace.js'
import { addFilters } from './security-groups/apply.js'
import type { Filters } from './security-groups/filters.js'
import { type AddressPair, guardedInterfaces, guardInterfaces, unguardInterface } from './source-guard.js'
import { bridges, type FabricEnd, type Switching } from './switching.js'
import { admitFrames } from './uplink-frames.js'

export type HostLeg = { networkId: string; mtu: number; interfaceName: string; addresses: string[] }

export type Attachment = {
  networkId: string
  mtu: number
  portId: string
  macAddress: string
  /** Addresses the machine may send from; anything else is dropped. */
  addresses: readonly string[]
  /** Network namespace of the machine, as `ip netns` names it. */
  namespace: string
  interfaceName: string
  /** Can reach the host leg, but no other isolated interface on the network. */
  isolated?: boolean
  /** What else it may send from. */
  pairs?: readonly AddressPair[]
  /** Without port security: it may send from any address. */
  isOpen?: boolean
  /** What it may send and receive; null: everything. In force before it is plugged in. */
  filters?: Filters | null
  /** Makes it the leg of a router: whose packets it passes on. CIDRs, or anybody's. */
  forwards?: 'anything' | readonly string[]
}

export type TapAttachment = Omit<Attachment, 'interfaceName'>

const MAX_ATTEMPTS = 3
/** The first is inherited from the host. Without IPv6, which the kernel may lack, no router advertisement gives a bridge an address. */
const SYSCTLS = ['net.ipv4.ip_forward=0', 'net.ipv6.conf.all.disable_ipv6=1', 'net.ipv6.conf.default.disable_ipv6=1']

const endOf = ({ portId, forwards }: Attachment) => (forwards === undefined ? interfaceOf : legOf)(portId)
const isEndOf =
  (kind: 'p' | 'r') =>
  ({ ifname }: Pick<Link, 'ifname'>): boolean =>
    ifname[0] === kind && /^[0-9a-f]{11}$/.test(ifname.slice(1))
const isUp = (link: Link) => link.flags.includes('UP')

/** Derived from the leg's name, so it never changes: machines keep it in their neighbour tables across restarts. */
export function legMacAddress(interfaceName: string): string {
  const digest = createHash('sha256').update(`krater host leg ${interfaceName}`).digest('hex')
  return `02${digest.slice(0, 10).replace(/../g, ':$&')}`
}

/**
 * The networks in the kernel: a dedicated namespace with one end of every interface, and a bridge per network or Open
 * vSwitch to connect them. Every operation may be repeated, interrupted at any step and run concurrently. All throw
 * IpCommandError if the result is not as desired, or what the switching throws.
 */
export class Fabric {
  readonly namespace: string
  readonly instance: string
  readonly #switching: Switching
  /** The namespace with the ends; null is the host's. */
  readonly #where: string | null

  /** @param instance 4 to 6 hexadecimal digits that distinguish this installation from others on the host */
  constructor({ instance, switching = bridges }: { instance: string; switching?: Switching }) {
    this.instance = instance
    this.#switching = switching
    this.namespace = `krater-${instance}`
    this.#where = switching.isOnHost ? null : this.namespace
  }

  /** Creates the namespace, with its loopback up. It passes frames on, but is no host on any network. */
  async ensure(): Promise<void> {
    await ensureNamespace(this.namespace)
    await runTool(['nsenter', `--net=/run/netns/${this.namespace}`, 'sysctl', '-e', '-q', '-w', ...SYSCTLS], '')
    if (this.#switching.isOnHost) await guardEnds(this.instance)
  }

  async ensureBridge(networkId: string, mtu: number): Promise<void> {
    await this.ensure()
    const failure = await ipBatch(this.namespace, bridges.networkLines(networkId, mtu))
    const bridge = await linkNamed(this.namespace, bridgeOf(networkId))
    if (bridge === null || !isUp(bridge)) throw failure ?? new IpCommandError(`${bridgeOf(networkId)} did not come up`)
  }

  /** Creates the host leg: an interface in the host's namespace, up, with exactly these addresses (with prefixes). */
  async attachHost(leg: HostLeg): Promise<void> {
    await this.ensure()
    const name = leg.interfaceName
    const end: FabricEnd = { name, networkId: leg.networkId, connectedAs: name }
    if (this.#switching.isOnHost) {
      await this.#switching.connectHost(end, { macAddress: legMacAddress(name), mtu: leg.mtu })
      return setAddresses(leg)
    }
    const state = async () => {
      const [host, port] = await Promise.all([linkNamed(null, name), linkNamed(this.#where, name)])
      const connected = port !== null && (await this.#switching.isConnected(port, end))
      const paired = host !== null && port !== null && port.link_index === host.ifindex
      return { port, stands: paired && (connected || this.#canConnect()), complete: paired && connected && isUp(port) }
    }
    let failure: IpCommandError | null = null
    for (let attempt = 0; !(await state()).complete; attempt++) {
      if (attempt === MAX_ATTEMPTS) throw failure ?? new IpCommandError(`Host leg ${name} did not come up`)
      const { port, stands } = await state()
      if (port !== null && !stands) await ipBatch(this.#where, [`link delete dev ${name}`])
      const peer = `name ${name} netns ${process.pid} address ${legMacAddress(name)}`
      failure = await ipBatch(this.#where, this.#pairLines(leg, name, peer, `host-${name}`))
      if ((await linkNamed(this.#where, name)) !== null) await this.#switching.connect(end)
    }
    await setAddresses(leg)
  }

  /**
   * Creates an interface with this MAC address directly in the machine's namespace, down, as if just plugged in. The
   * machine may rename it. Keeps an existing interface, but replaces a dead one (its machine was recreated). It sends
   * with its own MAC address and addresses only.
   */
  async attach(nic: Attachment): Promise<void> {
    const name = endOf(nic)
    let failure: IpCommandError | null = null
    if (!this.#exists()) await this.ensure()
    for (let attempt = 0; ; attempt++) {
      const { port, stands, complete } = await this.#inspect(nic)
      if (port?.ifalias !== undefined && port.ifalias !== nic.portId) {
        throw new IpCommandError(
          `Ports ${port.ifalias} and ${nic.portId} have the same first 11 digits and cannot both have an interface`,
        )
      }
      if (attempt === 0) await this.#guard(nic, name)
      if (complete) return
      if (attempt === MAX_ATTEMPTS)
        throw failure ?? new IpCommandError(`The interface of port ${nic.portId} did not come up`)
      const dead = port !== null && !stands
      const peer = `name ${nic.interfaceName} netns ${nic.namespace} address ${nic.macAddress}`
      failure = await ipBatch(this.#where, [
        ...(dead ? [`link delete dev ${name}`] : []),
        ...this.#pairLines(nic, name, peer, nic.portId),
        ...this.#isolationLines(nic, name),
      ])
      await this.#fillChecksums(nic, name)
      await this.#connect(nic, name)
    }
  }

  /**
   * Connects a tap device that a program in the machine's namespace has opened there, under the name `tapOf` gives. It
   * moves into the fabric; the program keeps the device, and reaches nothing else here. Safe to repeat.
   */
  async attachTap(nic: TapAttachment): Promise<void> {
    const name = interfaceOf(nic.portId)
    await this.ensure()
    await this.#guard(nic, name)
    if (await this.holdsTap(nic.portId)) return
    const moved = await ipBatch(nic.namespace, [`link set dev ${name} netns ${this.#where ?? process.pid}`])
    const failure = await ipBatch(this.#where, [
      ...this.#switching.networkLines(nic.networkId, nic.mtu),
      `link set dev ${name} mtu ${nic.mtu} ${this.#switching.linkWords(nic.networkId)}`,
      ...this.#isolationLines(nic, name),
      `link set dev ${name} ${this.#hostWords()} addrgenmode none alias ${nic.portId} up`,
    ])
    await this.#connect(nic, name)
    if (await this.holdsTap(nic.portId)) return
    throw moved ?? failure ?? new IpCommandError(`The interface of port ${nic.portId} did not come up`)
  }

  /** Whether a port's tap device is connected, and a program has it open. */
  async holdsTap(portId: string): Promise<boolean> {
    if (!this.#exists()) return false
    const link = await linkNamed(this.#where, interfaceOf(portId))
    if (link === null || !isUp(link) || !link.flags.includes('LOWER_UP')) return false
    return (await this.#switching.connected([link])).length > 0
  }

  /** Removes both ends at once, even while a socket with unsent data holds the machine's namespace. */
  detach(portId: string): Promise<void> {
    return this.#detach(interfaceOf(portId))
  }

  /** Removes the leg of a router. @param portId the port's ID, or the first 11 digits of it */
  detachLeg(portId: string): Promise<void> {
    return this.#detach(legOf(portId))
  }

  /** IDs of ports that have an interface: only the first 11 digits if its creator was killed before the last step. */
  async attachedPorts(): Promise<string[]> {
    return (await this.#ends('p')).map(portOf)
  }

  /** IDs of ports that are a router's leg, likewise; also where only the rules of a leg are left. */
  async attachedLegs(): Promise<string[]> {
    const ends = await this.#ends('r')
    const left = await this.#guardsWithout(ends)
    return [...ends.map(portOf), ...left.filter(name => name[0] === 'r').map(name => name.slice(1))]
  }

  /** The names of interfaces' ends, routers' legs excepted, and of bridges without any port. */
  async inventory(): Promise<{ interfaces: string[]; idleBridges: string[] }> {
    if (!this.#exists()) return { interfaces: [], idleBridges: [] }
    const present = [...(await links(this.namespace)), ...(this.#where === null ? await this.#ends('p') : [])]
    const used = new Set(present.map(({ master }) => master))
    return {
      interfaces: present.filter(isEndOf('p')).map(({ ifname }) => ifname),
      idleBridges: present.map(({ ifname }) => ifname).filter(name => isBridge(name) && !used.has(name)),
    }
  }

  /** The names of interfaces' ends that are gone, and have left their rules behind; routers' legs excepted. */
  async interfacesLeft(): Promise<string[]> {
    return (await this.#guardsWithout(await this.#ends('p'))).filter(name => name[0] === 'p')
  }

  /** The names of interfaces' ends that are gone, but that the switching would connect. */
  async endsLeft(): Promise<string[]> {
    const ends = await this.#switching.ends()
    if (ends.length === 0 || !this.#exists()) return ends
    const present = new Set((await links(this.#where)).map(({ ifname }) => ifname))
    return ends.filter(name => !present.has(name))
  }

  /** Disconnects ends by name that are gone. */
  async forgetEnds(names: readonly string[]): Promise<void> {
    for (const name of names) await this.#switching.disconnect(name)
  }

  /** Removes bridges by name. No error for one that is gone. */
  async removeBridges(names: readonly string[]): Promise<void> {
    if (names.length === 0) return
    const failure = await ipBatch(
      this.#where,
      names.map(name => `link delete dev ${name}`),
    )
    const remaining = new Set((await links(this.#where)).map(({ ifname }) => ifname))
    if (names.some(name => remaining.has(name))) throw failure ?? new IpCommandError('A bridge remains')
  }

  /** IDs of the ports whose interface is up and on a bridge. */
  async connectedPorts(): Promise<string[]> {
    return (await this.#switching.connected((await this.#ends('p')).filter(isUp))).map(portOf)
  }

  /**
   * Removes host legs, interfaces, bridges and the namespace.
   * @throws OvsdbUnreachable once all is removed but what a switch has recorded, which is away
   */
  async remove(): Promise<void> {
    if (!this.#exists()) return
    let away: OvsdbUnreachable | null = null
    if (this.#switching.isOnHost) {
      await this.#removeEnds().catch((error: unknown) => {
        if (!(error instanceof OvsdbUnreachable)) throw error
        away = error
      })
      await unguardEnds(this.instance)
    }
    const present = await links(this.namespace).catch(() => [])
    const removable = present.filter(link => link.ifname !== 'lo')
    // Interfaces and legs first: this also removes their other ends, even if a process still holds their namespaces.
    const order = [...removable.filter(link => link.master !== undefined), ...removable.filter(link => !link.master)]
    if (order.length > 0) {
      await ipBatch(
        this.namespace,
        order.map(link => `link delete dev ${link.ifname}`),
      )
    }
    await removeNamespace(this.namespace)
    if (away !== null) throw away
  }

  /**
   * Complete: the fabric's end is connected and up, and the other end is in the machine, with this MAC address. What
   * stands can be completed.
   */
  async #inspect(nic: Attachment): Promise<{ port: Link | null; stands: boolean; complete: boolean }> {
    const port = await linkNamed(this.#where, endOf(nic))
    if (port === null) return { port, stands: false, complete: false }
    const machine = await links(nic.namespace)
    const paired = machine.some(
      link => link.ifindex === port.link_index && link.link_index === port.ifindex && link.address === nic.macAddress,
    )
    const finished = isUp(port) && port.ifalias === nic.portId
    const end = { name: port.ifname, networkId: nic.networkId, connectedAs: nic.portId }
    const connected = paired && (await this.#switching.isConnected(port, end))
    return { port, stands: paired && (connected || this.#canConnect()), complete: connected && finished }
  }

  /** Whether an interface that exists can be connected: to a bridge, it is when it is made. */
  #canConnect(): boolean {
    return !this.#switching.usesBridges
  }

  /** Lets the machine fill in the checksums of what it sends, if the switching does not. */
  async #fillChecksums({ namespace }: Attachment, name: string): Promise<void> {
    if (!(await this.#switching.needsChecksums())) return
    const port = await linkNamed(this.#where, name)
    const end = (await links(namespace)).find(({ ifindex }) => ifindex === port?.link_index)
    if (end !== undefined)
      await runTool(['nsenter', `--net=/run/netns/${namespace}`, 'ethtool', '-K', end.ifname, 'tx', 'off'], '')
  }

  /** Does nothing for an interface that has not come to be. */
  async #connect({ networkId, portId }: TapAttachment, name: string): Promise<void> {
    if (this.#switching.usesBridges || (await linkNamed(this.#where, name)) === null) return
    await this.#switching.connect({ name, networkId, connectedAs: portId })
  }

  /** Creates what the interface is put on, then a veth pair. `peer` describes the other end in the syntax of `ip link`. */
  #pairLines(leg: { networkId: string; mtu: number }, name: string, peer: string, alias: string): string[] {
    const { networkId, mtu } = leg
    return [
      ...this.#switching.networkLines(networkId, mtu),
      `link add name ${name} mtu ${mtu} ${this.#switching.linkWords(networkId)} type veth peer ${peer} mtu ${mtu}`,
      `link set dev ${name} ${this.#hostWords()} addrgenmode none alias ${alias} up`,
    ]
  }

  #hostWords(): string {
    return this.#switching.isOnHost ? END_WORDS : ''
  }

  #isolationLines({ isolated }: TapAttachment, name: string): string[] {
    return isolated && this.#switching.usesBridges ? [`link set dev ${name} type bridge_slave isolated on`] : []
  }

  async #guard(nic: TapAttachment, name: string): Promise<void> {
    if (this.#switching.usesBridges) await guardInterfaces(this.namespace, [{ ...nic, name }])
    await admitFrames(this.instance, nic.networkId, nic.macAddress)
    if (!this.#switching.usesBridges || nic.filters === undefined || nic.filters === null) return
    await this.ensureBridge(nic.networkId, nic.mtu)
    await addFilters(this.namespace, nic.filters)
  }

  async #detach(name: string): Promise<void> {
    if (this.#exists()) await this.#switching.disconnect(name)
    const failure = await ipBatch(this.#where, [`link delete dev ${name}`])
    if (failure !== null && (await linkNamed(this.#where, name)) !== null) throw failure
    if (this.#switching.usesBridges && this.#exists()) await unguardInterface(this.namespace, name)
  }

  /** Removes all ends from the host's namespace. */
  async #removeEnds(): Promise<void> {
    const ends = await this.#switching.ends()
    for (const name of ends) await this.#switching.disconnect(name)
    const present = new Set((await links(null)).map(({ ifname }) => ifname))
    const left = ends.filter(name => present.has(name) && isEndOf('p')({ ifname: name }))
    if (left.length > 0)
      await ipBatch(
        null,
        left.map(name => `link delete dev ${name}`),
      )
  }

  /** The fabric's ends of interfaces, or of routers' legs. */
  async #ends(kind: 'p' | 'r'): Promise<Link[]> {
    if (!this.#exists()) return []
    const found = (await links(this.#where)).filter(isEndOf(kind))
    if (!this.#switching.isOnHost || found.length === 0) return found
    // Others have interfaces there too.
    const ours = new Set(await this.#switching.ends())
    return found.filter(({ ifname }) => ours.has(ifname))
  }

  /** The names of interfaces that have rules, without these. */
  async #guardsWithout(ends: readonly Link[]): Promise<string[]> {
    if (!this.#switching.usesBridges || !this.#exists()) return []
    const names = new Set(ends.map(({ ifname }) => ifname))
    return (await guardedInterfaces(this.namespace)).filter(name => !names.has(name))
  }

  #exists(): boolean {
    return namespaceExists(this.namespace)
  }
}

/** Gives the host's interface exactly these addresses, up. */
async function setAddresses({ interfaceName: name, addresses }: HostLeg): Promise<void> {
  const superfluous = (await interfaceAddresses(name)).filter(address => !addresses.includes(address))
  // nodad makes an IPv6 address usable at once. No other machine can have it on a network that Krater manages.
  const failure = await ipBatch(null, [
    ...superfluous.map(address => `address delete ${address} dev ${name}`),
    ...addresses.map(address => `address replace ${address} dev ${name}${address.includes(':') ? ' nodad' : ''}`),
    `link set dev ${name} up`,
  ])
  if (failure !== null) throw failure
}

/** The name of a port's tap device, in the machine's namespace and then in the fabric. */
export const tapOf = interfaceOf

const portOf = (link: Link) => link.ifalias ?? link.ifname.slice(1)
