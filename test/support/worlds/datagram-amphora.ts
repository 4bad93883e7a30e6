import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { DatagramListener, DatagramPool } from '../../../amphora-agent/protocol/datagrams.js'
import type { Desired, Interface } from '../../../amphora-agent/protocol/desired.js'
import { createAmphora, createNamespace } from './amphora.js'
import { datagramMember, desireDatagrams } from './datagrams-desired.js'

const SCTP_MEMBERS = fileURLToPath(new URL('../services/sctp-members.pl', import.meta.url))
const SCTP_CLIENT = fileURLToPath(new URL('../clients/sctp-client.pl', import.meta.url))

export const VIP = '10.66.0.100'
export const VIP6 = 'fd66::100'
/** The amphora's addresses on the members' network. */
export const OWN = '10.66.1.11'
export const OWN6 = 'fd66:1::11'
/** Clients have these addresses, and the same last parts in fd66::/64. */
const CLIENTS = [2, 3, 4, 130]
/** A client behind the VIP's gateway, and its address of the other family. */
export const FAR_CLIENT = '192.0.2.7'
export const FAR_CLIENT6 = 'fd77::7'

export const VIP_INTERFACE: Interface = {
  mac: '02:00:0a:42:00:01',
  name: 'vip0',
  mtu: 1500,
  addresses: ['10.66.0.11/24', 'fd66::11/64'],
  routes: [],
  vips: [
    { address: VIP, subnet: '10.66.0.0/24', gateway: '10.66.0.2' },
    { address: VIP6, subnet: 'fd66::/64', gateway: 'fd66::2' },
  ],
}
export const MEMBER_INTERFACE: Interface = {
  mac: '02:00:0a:42:01:01',
  name: 'member0',
  mtu: 1500,
  addresses: [`${OWN}/24`, `${OWN6}/64`],
  routes: [],
  vips: [],
}

export type Asking = { to?: string; port?: number; from?: string; size?: number }

/** An amphora between clients and UDP members, each in a namespace of their own. Members 1 to 4 and 101 to 103 answer. */
export async function createDatagramWorld() {
  const amphora = await createAmphora()
  const [client, members] = [createNamespace(), createNamespace()]
  await Promise.all([client.ready, members.ready])
  const clients = amphora.trafficIn(client.pid)
  const services = amphora.trafficIn(members.pid)

  function plug({ mac }: Interface, other: typeof client): void {
    const name = `p${mac.replaceAll(':', '').slice(-6)}`
    const link = ['link', 'add', name, 'address', mac, 'type', 'veth', 'peer', 'name', 'c0', 'netns', String(other.pid)]
    execFileSync('nsenter', ['-t', String(amphora.initPid), '-n', 'ip', ...link], { stdio: 'pipe' })
    other.ip('link', 'set', 'c0', 'up')
  }
  plug(VIP_INTERFACE, client)
  plug(MEMBER_INTERFACE, members)
  for (const host of CLIENTS) {
    client.ip('addr', 'add', `10.66.0.${host}/24`, 'dev', 'c0')
    client.ip('addr', 'add', `fd66::${host}/64`, 'dev', 'c0', 'nodad')
  }
  client.ip('addr', 'add', `${FAR_CLIENT}/32`, 'dev', 'lo')
  client.ip('addr', 'add', `${FAR_CLIENT6}/128`, 'dev', 'lo')
  for (const number of [1, 2, 3, 4, 101, 102, 103]) {
    const { address, port } = datagramMember(number)
    members.ip(
      ...(number > 100
        ? ['addr', 'add', `${address}/64`, 'dev', 'c0', 'nodad']
        : ['addr', 'add', `${address}/24`, 'dev', 'c0']),
    )
    await services.ask('datagramMember', { name: `member-${number}`, address, port })
  }

  let generation = 0
  let agent = await amphora.connect()
  const open = ({ to = VIP, port = 53, from, size }: Asking = {}) => ({ address: to, port, from, size })

  return {
    amphora,
    services,
    clients,
    /** The namespaces of the clients and of the members. */
    clientNetwork: client,
    memberNetwork: members,
    agent: () => agent,
    /** After the agent was restarted. */
    reconnect: async () => {
      agent.end()
      agent = await amphora.connect()
    },
    apply: (listeners: DatagramListener[], pools: DatagramPool[], changes: Partial<Desired> = {}) =>
      agent.apply(
        desireDatagrams(
          ++generation,
          { listeners, pools },
          { interfaces: [VIP_INTERFACE, MEMBER_INTERFACE], ...changes },
        ),
      ),
    /** Sends datagrams, each of a new flow. @returns who answered, without the address that it saw */
    ask: async (count: number, asking?: Asking) => {
      const answers = await clients.ask<string[]>('datagrams', { ...open(asking), count })
      return answers.map(answer => answer.split(' ')[0]!)
    },
    /** Sends datagrams, each of a new flow. @returns how often there was which answer, with the address that the member saw */
    tally: async (count: number, asking?: Asking) => {
      const tally: Record<string, number> = {}
      const answers = await clients.ask<string[]>('datagrams', { ...open(asking), count })
      for (const answer of answers) tally[answer] = (tally[answer] ?? 0) + 1
      return tally
    },
    /** Opens a flow. @returns a function that sends a datagram on it, and resolves with who answered */
    flow: async (name: string, asking?: Asking) => {
      await clients.ask('openFlow', { ...open(asking), name })
      return async () => (await clients.ask<string>('flow', { name })).split(' ')[0]!
    },
    /** A client asks for an echo and gets it. */
    ping: (to: string) => execFileSync('nsenter', ['-t', String(client.pid), '-n', 'ping', '-c', '1', '-W', '2', to]),
    /** Members that speak SCTP, at all addresses of members; port 9000 accepts associations. */
    startSctpMembers: async () => {
      const child = spawn('nsenter', ['-t', String(members.pid), '-n', 'perl', SCTP_MEMBERS], {
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      await once(child.stdout, 'data')
      return {
        end: async () => {
          const gone = once(child, 'exit')
          child.kill()
          await gone
        },
      }
    },
    /** Sends a packet of SCTP. @returns the first answer, or `silence` */
    initiate: (to: string, packet: Buffer) =>
      execFileSync('nsenter', ['-t', String(client.pid), '-n', 'perl', SCTP_CLIENT, to, packet.toString('hex')], {
        encoding: 'utf8',
      }).trim(),
    nft: (...args: string[]) => amphora.inside('nft', ...args),
    end: async () => {
      clients.end()
      services.end()
      await client.end()
      await members.end()
      await amphora.destroy()
    },
  }
}
