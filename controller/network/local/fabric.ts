import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
import { addressesOf, IpCommandError, ip, ipBatch, type Link, linkNamed, links } from './ip-command.js'
import { forgetInterface, guardInterface } from './source-guard.js'

export type HostLeg = { networkId: string; mtu: number; interfaceName: string; addresses: string[] }

export type Attachment = {
  networkId: string
  mtu: number
  portId: string
  macAddress: string
  /** What its machine may send from; anything else is dropped. */
  addresses: readonly string[]
  /** Network namespace of the machine, as `ip netns` names it. */
  namespace: string
  interfaceName: string
  /** Reaches the host's leg, and no other isolated interface of the network. */
  isolated?: boolean
}

const HALF_MADE_PATIENCE_MS = 500
const ATTEMPTS = 3

const hex = (id: string) => id.replaceAll('-', '').toLowerCase()
const bridgeOf = (networkId: string) => `br${hex(networkId).slice(0, 12)}`
const interfaceOf = (portId: string) => `p${hex(portId).slice(0, 11)}`
const isUp = (link: Link) => link.flags.includes('UP')

/** Always the same for the same leg: machines remember it in their neighbour tables while the controller is away. */
function legMacAddress(interfaceName: string): string {
  const digest = createHash('sha256').update(`krater host leg ${interfaceName}`).digest('hex')
  return `02${digest.slice(0, 10).replace(/../g, ':$&')}`
}

/**
 * The kernel's side of the networks: a namespace of its own with one bridge per network. Everything may be repeated, cut off at any step
 * and run twice at once. All throw IpCommandError when the outcome is not as desired.
 */
export class Fabric {
  readonly namespace: string

  /** @param instance 4 to 6 hexadecimal digits that tell this installation from others on the machine */
  constructor({ instance }: { instance: string }) {
    this.namespace = `krater-${instance}`
  }

  /** The namespace, with its loopback up. */
  async ensure(): Promise<void> {
    if (this.#exists() && (await this.#answers())) return
    // Another process may be between making the file and mounting the namespace on it; a file that stays empty was left by a dead one.
    for (let waited = 0; this.#exists() && waited < HALF_MADE_PATIENCE_MS; waited += 50) {
      if (await this.#answers()) return
      await wait(50)
    }
    if (this.#exists()) await ip(['netns', 'delete', this.namespace]).catch(() => undefined)
    const failure = await ip(['netns', 'add', this.namespace]).catch((error: unknown) => error)
    for (let waited = 0; waited < HALF_MADE_PATIENCE_MS; waited += 50) {
      if (await this.#answers()) return
      await wait(50)
    }
    throw failure instanceof Error ? failure : new IpCommandError(`The namespace ${this.namespace} does not answer`)
  }

  async ensureBridge(networkId: string, mtu: number): Promise<void> {
    await this.ensure()
    const failure = await ipBatch(this.namespace, bridgeLines(networkId, mtu))
    const bridge = await linkNamed(this.namespace, bridgeOf(networkId))
    if (bridge === null || !isUp(bridge)) throw failure ?? new IpCommandError(`${bridgeOf(networkId)} did not come up`)
  }

  /** The host's own leg on a network: an interface in the host's namespace that has exactly these addresses (with prefix lengths), up. */
  async attachHost(leg: HostLeg): Promise<void> {
    await this.ensure()
    const name = leg.interfaceName
    const state = async () => {
      const [host, port] = await Promise.all([linkNamed(null, name), linkNamed(this.namespace, name)])
      const paired = host !== null && port !== null && port.link_index === host.ifindex
      return { host, port, whole: paired && port.master === bridgeOf(leg.networkId) && isUp(port) }
    }
    let failure: IpCommandError | null = null
    for (let attempt = 0; !(await state()).whole; attempt++) {
      if (attempt === ATTEMPTS) throw failure ?? new IpCommandError(`The host's leg ${name} did not come up`)
      const { port } = await state()
      if (port !== null && port.master !== bridgeOf(leg.networkId)) {
        await ipBatch(this.namespace, [`link delete dev ${name}`])
      }
      const peer = `name ${name} netns ${process.pid} address ${legMacAddress(name)}`
      failure = await ipBatch(this.namespace, pairLines(leg, name, peer, `host-${name}`))
    }
    const present = await addressesOf(name)
    const superfluous = present.filter(address => !leg.addresses.includes(address))
    // nodad: an IPv6 address can be used at once, and no other machine can have it on a network that we manage.
    await ipBatch(null, [
      ...superfluous.map(address => `address delete ${address} dev ${name}`),
      ...leg.addresses.map(address => `address replace ${address} dev ${name}${address.includes(':') ? ' nodad' : ''}`),
      `link set dev ${name} up`,
    ]).then(error => {
      if (error !== null) throw error
    })
  }

  /**
   * An interface with this MAC address in the machine's namespace, born there and down, as an interface is that was just plugged in. The machine may rename it.
   * One that is there already is kept; a dead one (its machine was made anew) is replaced. It sends with its own MAC address and addresses only.
   */
  async attach(nic: Attachment): Promise<void> {
    const name = interfaceOf(nic.portId)
    let failure: IpCommandError | null = null
    if (!this.#exists()) await this.ensure()
    for (let attempt = 0; ; attempt++) {
      const { port, paired, whole } = await this.#inspect(nic)
      if (port?.ifalias !== undefined && port.ifalias !== nic.portId) {
        throw new IpCommandError(
          `Ports ${port.ifalias} and ${nic.portId} begin alike and cannot both have an interface`,
        )
      }
      if (attempt === 0) await guardInterface(this.namespace, { ...nic, name })
      if (whole) return
      if (attempt === ATTEMPTS)
        throw failure ?? new IpCommandError(`The interface of port ${nic.portId} did not come up`)
      const dead = port !== null && (!paired || port.master !== bridgeOf(nic.networkId))
      const peer = `name ${nic.interfaceName} netns ${nic.namespace} address ${nic.macAddress}`
      failure = await ipBatch(this.namespace, [
        ...(dead ? [`link delete dev ${name}`] : []),
        ...pairLines(nic, name, peer, nic.portId),
        ...(nic.isolated ? [`link set dev ${name} type bridge_slave isolated on`] : []),
      ])
    }
  }

  /** Takes both ends away at once, even while the machine's namespace is held by a socket with unsent data. */
  async detach(portId: string): Promise<void> {
    const failure = await ipBatch(this.namespace, [`link delete dev ${interfaceOf(portId)}`])
    if (failure !== null && (await linkNamed(this.namespace, interfaceOf(portId))) !== null) throw failure
    if (this.#exists()) await forgetInterface(this.namespace, interfaceOf(portId))
  }

  /** Ids of the ports that have an interface. An interface whose maker was killed before its last step is told by the first 11 digits of the id alone. */
  async attachedPorts(): Promise<string[]> {
    return (await this.#ends()).map(portOf)
  }

  /** Those of them whose interface is up, on a bridge. */
  async standingPorts(): Promise<string[]> {
    return (await this.#ends()).filter(link => isUp(link) && link.master !== undefined).map(portOf)
  }

  /** Host legs, interfaces, bridges and the namespace: nothing is left. */
  async remove(): Promise<void> {
    if (!this.#exists()) return
    const present = await links(this.namespace).catch(() => [])
    const removable = present.filter(link => link.ifname !== 'lo')
    // Interfaces and legs first: that takes their other ends away, whoever still holds the namespace those stand in.
    const order = [...removable.filter(link => link.master !== undefined), ...removable.filter(link => !link.master)]
    if (order.length > 0) {
      await ipBatch(
        this.namespace,
        order.map(link => `link delete dev ${link.ifname}`),
      )
    }
    await ip(['netns', 'delete', this.namespace]).catch(error => {
      if (this.#exists()) throw error
    })
  }

  /** Whether the port's interface is whole: fabric end on the bridge and up, other end in the machine, with this MAC address. */
  async #inspect(nic: Attachment): Promise<{ port: Link | null; paired: boolean; whole: boolean }> {
    const port = await linkNamed(this.namespace, interfaceOf(nic.portId))
    if (port === null) return { port, paired: false, whole: false }
    const machine = await links(nic.namespace)
    const paired = machine.some(
      link => link.ifindex === port.link_index && link.link_index === port.ifindex && link.address === nic.macAddress,
    )
    const finished = isUp(port) && port.ifalias === nic.portId
    return { port, paired, whole: paired && finished && port.master === bridgeOf(nic.networkId) }
  }

  /** Those ends of interfaces that stand in the fabric. */
  async #ends(): Promise<Link[]> {
    if (!this.#exists()) return []
    return (await links(this.namespace)).filter(link => /^p[0-9a-f]{11}$/.test(link.ifname))
  }

  #exists(): boolean {
    return existsSync(`/run/netns/${this.namespace}`)
  }

  #answers(): Promise<boolean> {
    return ip(['-n', this.namespace, 'link', 'set', 'lo', 'up']).then(
      () => true,
      () => false,
    )
  }
}

const portOf = (link: Link) => link.ifalias ?? link.ifname.slice(1)

const bridgeLines = (networkId: string, mtu: number) => [
  `link add name ${bridgeOf(networkId)} type bridge forward_delay 0 stp_state 0 mcast_snooping 0`,
  `link set dev ${bridgeOf(networkId)} addrgenmode none mtu ${mtu} up`,
]

/** Makes a veth pair, enslaved from birth, whose other end stands in `peer` (words of `ip link`), after the bridge. */
const pairLines = (leg: { networkId: string; mtu: number }, name: string, peer: string, alias: string) => [
  ...bridgeLines(leg.networkId, leg.mtu),
  `link add name ${name} mtu ${leg.mtu} master ${bridgeOf(leg.networkId)} type veth peer ${peer} mtu ${leg.mtu}`,
  `link set dev ${name} addrgenmode none alias ${alias} up`,
]
