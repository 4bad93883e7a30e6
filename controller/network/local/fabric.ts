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

/**
 * The kernel's side of the networks: a namespace of its own with one bridge per network. Everything may be repeated, cut off at any step
 * and run twice at once. All throw IpCommandError when the outcome is not as desired.
 */
export type Fabric = {
  namespace: string
  /** The namespace, with its loopback up. */
  ensure: () => Promise<void>
  ensureBridge: (networkId: string, mtu: number) => Promise<void>
  /** The host's own leg on a network: an interface in the host's namespace that has exactly these addresses (with prefix lengths), up. */
  attachHost: (leg: HostLeg) => Promise<void>
  /**
   * An interface with this MAC address in the machine's namespace, born there and down, as an interface is that was just plugged in. The machine may rename it.
   * One that is there already is kept; a dead one (its machine was made anew) is replaced. It sends with its own MAC address and addresses only.
   */
  attach: (nic: Attachment) => Promise<void>
  /** Takes both ends away at once, even while the machine's namespace is held by a socket with unsent data. */
  detach: (portId: string) => Promise<void>
  /** Ids of the ports that have an interface. An interface whose maker was killed before its last step is told by the first 11 digits of the id alone. */
  attachedPorts: () => Promise<string[]>
  /** Those of them whose interface is up, on a bridge. */
  standingPorts: () => Promise<string[]>
  /** Host legs, interfaces, bridges and the namespace: nothing is left. */
  remove: () => Promise<void>
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

/** @param instance 4 to 6 hexadecimal digits that tell this installation from others on the machine */
export function createFabric({ instance }: { instance: string }): Fabric {
  const namespace = `krater-${instance}`
  const file = `/run/netns/${namespace}`

  const answers = () =>
    ip(['-n', namespace, 'link', 'set', 'lo', 'up']).then(
      () => true,
      () => false,
    )

  async function ensure(): Promise<void> {
    if (existsSync(file) && (await answers())) return
    // Another process may be between making the file and mounting the namespace on it; a file that stays empty was left by a dead one.
    for (let waited = 0; existsSync(file) && waited < HALF_MADE_PATIENCE_MS; waited += 50) {
      if (await answers()) return
      await wait(50)
    }
    if (existsSync(file)) await ip(['netns', 'delete', namespace]).catch(() => undefined)
    const failure = await ip(['netns', 'add', namespace]).catch((error: unknown) => error)
    for (let waited = 0; waited < HALF_MADE_PATIENCE_MS; waited += 50) {
      if (await answers()) return
      await wait(50)
    }
    throw failure instanceof Error ? failure : new IpCommandError(`The namespace ${namespace} does not answer`)
  }

  const bridgeLines = (networkId: string, mtu: number) => [
    `link add name ${bridgeOf(networkId)} type bridge forward_delay 0 stp_state 0 mcast_snooping 0`,
    `link set dev ${bridgeOf(networkId)} addrgenmode none mtu ${mtu} up`,
  ]

  async function ensureBridge(networkId: string, mtu: number): Promise<void> {
    await ensure()
    const failure = await ipBatch(namespace, bridgeLines(networkId, mtu))
    const bridge = await linkNamed(namespace, bridgeOf(networkId))
    if (bridge === null || !isUp(bridge)) throw failure ?? new IpCommandError(`${bridgeOf(networkId)} did not come up`)
  }

  /** Makes a veth pair, enslaved from birth, whose other end stands in `peer` (words of `ip link`), after the bridge. */
  const pairLines = (leg: { networkId: string; mtu: number }, name: string, peer: string, alias: string) => [
    ...bridgeLines(leg.networkId, leg.mtu),
    `link add name ${name} mtu ${leg.mtu} master ${bridgeOf(leg.networkId)} type veth peer ${peer} mtu ${leg.mtu}`,
    `link set dev ${name} addrgenmode none alias ${alias} up`,
  ]

  async function attachHost(leg: HostLeg): Promise<void> {
    await ensure()
    const name = leg.interfaceName
    const state = async () => {
      const [host, port] = await Promise.all([linkNamed(null, name), linkNamed(namespace, name)])
      const paired = host !== null && port !== null && port.link_index === host.ifindex
      return { host, port, whole: paired && port.master === bridgeOf(leg.networkId) && isUp(port) }
    }
    let failure: IpCommandError | null = null
    for (let attempt = 0; !(await state()).whole; attempt++) {
      if (attempt === ATTEMPTS) throw failure ?? new IpCommandError(`The host's leg ${name} did not come up`)
      const { port } = await state()
      if (port !== null && port.master !== bridgeOf(leg.networkId)) {
        await ipBatch(namespace, [`link delete dev ${name}`])
      }
      const peer = `name ${name} netns ${process.pid} address ${legMacAddress(name)}`
      failure = await ipBatch(namespace, pairLines(leg, name, peer, `host-${name}`))
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

  /** Whether the port's interface is whole: fabric end on the bridge and up, other end in the machine, with this MAC address. */
  async function inspect(nic: Attachment): Promise<{ port: Link | null; paired: boolean; whole: boolean }> {
    const port = await linkNamed(namespace, interfaceOf(nic.portId))
    if (port === null) return { port, paired: false, whole: false }
    const machine = await links(nic.namespace)
    const paired = machine.some(
      link => link.ifindex === port.link_index && link.link_index === port.ifindex && link.address === nic.macAddress,
    )
    const finished = isUp(port) && port.ifalias === nic.portId
    return { port, paired, whole: paired && finished && port.master === bridgeOf(nic.networkId) }
  }

  async function attach(nic: Attachment): Promise<void> {
    const name = interfaceOf(nic.portId)
    let failure: IpCommandError | null = null
    if (!existsSync(file)) await ensure()
    for (let attempt = 0; ; attempt++) {
      const { port, paired, whole } = await inspect(nic)
      if (port?.ifalias !== undefined && port.ifalias !== nic.portId) {
        throw new IpCommandError(
          `Ports ${port.ifalias} and ${nic.portId} begin alike and cannot both have an interface`,
        )
      }
      if (attempt === 0) await guardInterface(namespace, { ...nic, name })
      if (whole) return
      if (attempt === ATTEMPTS)
        throw failure ?? new IpCommandError(`The interface of port ${nic.portId} did not come up`)
      const dead = port !== null && (!paired || port.master !== bridgeOf(nic.networkId))
      const peer = `name ${nic.interfaceName} netns ${nic.namespace} address ${nic.macAddress}`
      failure = await ipBatch(namespace, [
        ...(dead ? [`link delete dev ${name}`] : []),
        ...pairLines(nic, name, peer, nic.portId),
        ...(nic.isolated ? [`link set dev ${name} type bridge_slave isolated on`] : []),
      ])
    }
  }

  async function detach(portId: string): Promise<void> {
    const failure = await ipBatch(namespace, [`link delete dev ${interfaceOf(portId)}`])
    if (failure !== null && (await linkNamed(namespace, interfaceOf(portId))) !== null) throw failure
    if (existsSync(file)) await forgetInterface(namespace, interfaceOf(portId))
  }

  async function fabricEnds(): Promise<Link[]> {
    if (!existsSync(file)) return []
    return (await links(namespace)).filter(link => /^p[0-9a-f]{11}$/.test(link.ifname))
  }
  const portOf = (link: Link) => link.ifalias ?? link.ifname.slice(1)
  const attachedPorts = async () => (await fabricEnds()).map(portOf)
  const standingPorts = async () =>
    (await fabricEnds()).filter(link => isUp(link) && link.master !== undefined).map(portOf)

  async function remove(): Promise<void> {
    if (!existsSync(file)) return
    const present = await links(namespace).catch(() => [])
    const removable = present.filter(link => link.ifname !== 'lo')
    // Interfaces and legs first: that takes their other ends away, whoever still holds the namespace those stand in.
    const order = [...removable.filter(link => link.master !== undefined), ...removable.filter(link => !link.master)]
    if (order.length > 0) {
      await ipBatch(
        namespace,
        order.map(link => `link delete dev ${link.ifname}`),
      )
    }
    await ip(['netns', 'delete', namespace]).catch(error => {
      if (existsSync(file)) throw error
    })
  }

  return { namespace, ensure, ensureBridge, attachHost, attach, detach, attachedPorts, standingPorts, remove }
}
