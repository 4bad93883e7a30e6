import { execFile } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { existsSync } from 'node:fs'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { ip } from '../../../controller/network/local/ip-command.js'

const run = promisify(execFile)

/** A LAN, to which an interface of this host leads. Its switch and its machines are namespaces. */
export type Lan = {
  /** The host's interface, with the host's addresses on the LAN. */
  interfaceName: string
  /** Namespace of the switch, whose bridge is `lan`. */
  switchNamespace: string
  /** Of the LAN's IPv4 /24 and IPv6 /64, which no other LAN has; the host is 1. */
  address: { v4: (host: number) => string; v6: (host: number) => string }
  /** Adds a machine with these addresses at `eth0`. @returns its namespace */
  machine: (host: number) => Promise<string>
  /** Plugs an interface of another machine's namespace in, and gives it these addresses. */
  plug: (namespace: string, device: string, host: number, mac: string) => Promise<void>
  /** Adds the host's interface, as when a driver finds its card. */
  plugHost: () => Promise<void>
}

export const inNamespace = (namespace: string | null, program: string, ...args: string[]): [string, string[]] =>
  namespace === null ? [program, args] : ['ip', ['netns', 'exec', namespace, program, ...args]]

/** Runs a program in a namespace; null is the host's. @returns its output, also when it fails */
export async function outputIn(namespace: string | null, ...argv: [string, ...string[]]): Promise<string> {
  const [program, args] = inNamespace(namespace, ...argv)
  return run(program, args, { timeout: 60_000 }).then(
    ({ stdout }) => stdout,
    (error: { stdout?: string }) => error.stdout ?? '',
  )
}

/**
 * What the host has of an interface, and its links and firewall tables with a text in their names. For comparison; other
 * tests change the rest, and the test itself makes namespaces.
 */
export async function hostState(interfaceName: string, text: string): Promise<string[]> {
  return [...(await interfaceState(interfaceName)), ...(await linesWith(text, [...LINKS_AND_TABLES]))]
}

const LINKS_AND_TABLES = [
  ['ip', '-brief', 'link', 'show'],
  ['nft', 'list', 'tables'],
] satisfies [string, ...string[]][]

/** An interface of the host: the link, addresses, routes, rules and queueing disciplines. */
export async function interfaceState(interfaceName: string): Promise<string[]> {
  const dev = ['dev', interfaceName]
  return Promise.all([
    outputIn(null, 'ip', 'link', 'show', ...dev),
    outputIn(null, 'ip', '-4', 'address', 'show', ...dev),
    outputIn(null, 'ip', '-6', 'address', 'show', 'scope', 'global', ...dev),
    outputIn(null, 'ip', '-4', 'route', 'show', 'table', 'all', ...dev),
    outputIn(null, 'ip', '-6', 'route', 'show', ...dev),
    outputIn(null, 'ip', 'rule', 'show'),
    outputIn(null, 'tc', 'qdisc', 'show', ...dev),
  ])
}

/** The host's links, firewall tables and namespaces whose lines have this text. */
export async function namesWith(text: string): Promise<string[]> {
  return linesWith(text, [...LINKS_AND_TABLES, ['ip', 'netns', 'list']])
}

async function linesWith(text: string, commands: readonly [string, ...string[]][]): Promise<string[]> {
  const lists = await Promise.all(commands.map(argv => outputIn(null, ...argv)))
  return lists.flatMap(list => list.split('\n')).filter(line => line.includes(text))
}

/** Makes a LAN; the teardown removes it. */
export async function createLan(t: Test): Promise<Lan> {
  const id = randomBytes(3).toString('hex')
  const interfaceName = `lan${id}`
  const switchNamespace = `test-lan-${id}`
  const namespaces: string[] = []
  const add = async (namespace: string) => {
    await ip(['netns', 'add', namespace])
    namespaces.push(namespace)
    await ip(['-n', namespace, 'link', 'set', 'lo', 'up'])
  }
  t.teardown(async () => {
    if (existsSync(`/run/netns/${switchNamespace}`)) {
      // Both ends go at once, even while something still holds the other namespace.
      await ip(['-n', switchNamespace, 'link', 'delete', 'host']).catch(() => undefined)
    }
    for (const namespace of namespaces.reverse()) await ip(['netns', 'delete', namespace])
  })
  const part = randomInt(256)
  const address = {
    v4: (host: number) => `198.19.${part}.${host}`,
    v6: (host: number) => `2001:db8:${part.toString(16)}::${host}`,
  }
  const configure = async (namespace: string | null, name: string, host: number) => {
    const where = namespace === null ? [] : ['-n', namespace]
    await ip([...where, 'address', 'add', `${address.v4(host)}/24`, 'dev', name])
    await ip([...where, 'address', 'add', `${address.v6(host)}/64`, 'dev', name, 'nodad'])
    await ip([...where, 'link', 'set', 'dev', name, 'up'])
  }
  const plug = async (port: string, peer: string[]) => {
    await ip(['-n', switchNamespace, 'link', 'add', 'name', port, 'type', 'veth', 'peer', ...peer])
    await ip(['-n', switchNamespace, 'link', 'set', 'dev', port, 'master', 'lan', 'up'])
  }
  const plugHost = async () => {
    await plug('host', ['name', interfaceName, 'netns', String(process.pid)])
    await configure(null, interfaceName, 1)
  }
  await add(switchNamespace)
  await ip(['-n', switchNamespace, 'link', 'add', 'name', 'lan', 'type', 'bridge', 'forward_delay', '0'])
  await ip(['-n', switchNamespace, 'link', 'set', 'dev', 'lan', 'type', 'bridge', 'mcast_snooping', '0'])
  await ip(['-n', switchNamespace, 'link', 'set', 'dev', 'lan', 'addrgenmode', 'none', 'up'])
  await plugHost()
  return {
    interfaceName,
    switchNamespace,
    address,
    plugHost,
    machine: async host => {
      const namespace = `test-lan-${id}-${host}`
      await add(namespace)
      await plug(`m${host}`, ['name', 'eth0', 'netns', namespace])
      await configure(namespace, 'eth0', host)
      return namespace
    },
    plug: async (namespace, device, host, mac) => {
      await plug(`m${host}`, ['name', device, 'address', mac, 'netns', namespace])
      await configure(namespace, device, host)
    },
  }
}
