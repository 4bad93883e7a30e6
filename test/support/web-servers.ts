import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { createFabric } from '../../controller/network/local/fabric.js'
import type { Krater } from './krater.js'

const run = promisify(execFile)

/** A subnet of the tenant's with one web server on it, which answers every request with the subnet's name. */
export type Site = { name: string; subnetId: string; networkId: string; address: string; port: number }

const PORT = 8080
const SERVER = `const [...sites] = process.argv.slice(1).map(word => word.split('='))
for (const [name, address] of sites) {
  const server = require('node:http').createServer((_, response) => response.end(name))
  server.listen(${PORT}, address, () => console.log('listening'))
}`

/**
 * Makes a network with a subnet for each name, by the Networking API as any client would, and one machine (a network namespace of the
 * test's own) that stands on all of them and serves on each. Gone at the end of the test.
 */
export async function createSites<N extends string>(
  t: Test,
  krater: Krater,
  names: readonly N[],
): Promise<Record<N, Site>> {
  const api = await krater.api()
  const make = async <T>(kind: 'network' | 'subnet' | 'port', body: Record<string, unknown>): Promise<T> => {
    const answer = await api.request('network', 'POST', `/v2.0/${kind}s`, { [kind]: body })
    return (answer as Record<typeof kind, T>)[kind]
  }
  const namespace = `test-${krater.instance()}-sites`
  const fabric = createFabric({ instance: krater.instance() })
  const ip = (...args: string[]) => run('ip', args, { timeout: 10_000 })
  await ip('netns', 'add', namespace)
  t.teardown(() => ip('netns', 'delete', namespace))
  await ip('-n', namespace, 'link', 'set', 'lo', 'up')

  const sites: Site[] = []
  for (const [index, name] of names.entries()) {
    const { id: network_id } = await make<{ id: string }>('network', { name })
    const cidr = `192.168.${200 + index}.0/24`
    const subnet = await make<{ id: string }>('subnet', { name, network_id, cidr, ip_version: 4, gateway_ip: null })
    const port = await make<{ id: string; mac_address: string; fixed_ips: { ip_address: string }[] }>('port', {
      name,
      network_id,
    })
    const address = port.fixed_ips[0]?.ip_address ?? ''
    const interfaceName = `site${index}`
    const card = { networkId: network_id, mtu: 1500, portId: port.id, macAddress: port.mac_address }
    t.teardown(() => fabric.detach(port.id))
    await fabric.attach({ ...card, namespace, interfaceName })
    await ip('-n', namespace, 'addr', 'add', `${address}/24`, 'dev', interfaceName)
    await ip('-n', namespace, 'link', 'set', interfaceName, 'up')
    sites.push({ name, subnetId: subnet.id, networkId: network_id, address, port: PORT })
  }
  const words = sites.map(({ name, address }) => `${name}=${address}`)
  const server = spawn(
    'ip',
    ['netns', 'exec', namespace, 'env', '-u', 'NODE_OPTIONS', process.execPath, '-e', SERVER, ...words],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  )
  const ended = once(server, 'exit')
  t.teardown(async () => {
    server.kill('SIGKILL')
    await ended
  })
  let listening = 0
  for await (const said of server.stdout) {
    listening += String(said).split('\n').length - 1
    if (listening === sites.length) break
  }
  return Object.fromEntries(sites.map(site => [site.name, site])) as Record<N, Site>
}
