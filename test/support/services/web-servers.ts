import type { Test } from 'tap'
import type { Krater } from '../worlds/krater.js'
import { createTenantMachine, type TenantMachine } from '../worlds/tenant-machine.js'

/**
 * A subnet of the tenant with one web server, which answers every request with the subnet's name:
 * `/slow/MILLISECONDS` late, `/begun/MILLISECONDS` with headers at once and a late body, `/login` with a new
 * cookie `sid`, `/all-but/NAME` with an error if that is its name. After an upgrade it echoes what it gets.
 */
export type Site = { name: string; subnetId: string; networkId: string; address: string; port: number }

const PORT = 8080
const SERVER = `const [...sites] = process.argv.slice(1).map(word => word.split('='))
for (const [name, address] of sites) {
  let sessions = 0
  const server = require('node:http').createServer((request, response) => {
    if (request.url === '/login') response.setHeader('Set-Cookie', 'sid=' + name + ++sessions)
    if (request.url === '/all-but/' + name) response.statusCode = 503
    const [, how, late = 0] = /^\\/(slow|begun)\\/(\\d+)/.exec(request.url) ?? []
    if (how === 'begun') response.flushHeaders()
    if (late === 0) response.end(name)
    else setTimeout(() => response.end(name), Number(late))
  })
  server.on('upgrade', (request, socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n')
    socket.on('error', () => {}).pipe(socket)
  })
  server.listen(${PORT}, address, () => console.log('listening'))
}`

/**
 * Creates a network with a subnet for each name, and one tenant machine that is on all of them and serves on
 * each. It ends with the test.
 */
export async function createSites<N extends string>(
  t: Test,
  krater: Krater,
  names: readonly N[],
): Promise<Record<N, Site>> {
  const machine = await createTenantMachine(t, krater, 'sites')
  const sites: Site[] = []
  for (const [index, name] of names.entries()) {
    const { networkId, legs } = await machine.standOn(`site-${name}`, [`192.168.${200 + index}.0/24`])
    for (const leg of legs) sites.push({ ...leg, name, networkId, port: PORT })
  }
  await serve(machine, sites)
  return byName(sites)
}

/** Like createSites, with an IPv4 and an IPv6 subnet of one network. */
export async function createDualSites(t: Test, krater: Krater): Promise<Record<'four' | 'six', Site>> {
  const machine = await createTenantMachine(t, krater, 'dual')
  const { networkId, legs } = await machine.standOn('site-dual', ['192.168.230.0/24', 'fd00:230::/64'])
  const sites = legs.map((leg, index) => ({ ...leg, name: index === 0 ? 'four' : 'six', networkId, port: PORT }))
  await serve(machine, sites)
  return byName(sites)
}

const byName = <N extends string>(sites: readonly Site[]) =>
  Object.fromEntries(sites.map(site => [site.name, site])) as Record<N, Site>

async function serve(machine: TenantMachine, sites: readonly Site[]): Promise<void> {
  const server = machine.start(
    SERVER,
    sites.map(({ name, address }) => `${name}=${address}`),
  )
  let listening = 0
  for await (const said of server.stdout ?? []) {
    listening += String(said).split('\n').length - 1
    if (listening === sites.length) break
  }
}
