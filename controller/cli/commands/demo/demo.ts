import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import { computeDrivers } from '../../../compute/drivers.js'
import { networkDrivers } from '../../../network/drivers.js'
import { type ApiClient, signIn } from '../../api-client.js'
import type { Command } from '../../command.js'
import { requireRoot } from '../../host/checks.js'
import { OperatorError } from '../../operator-error.js'
import { runningProcesses } from '../../state-directory/run-record.js'
import { bold, dim, green, print } from '../../terminal.js'
import { computeDriverOf, fabricOf, networkDriverOf, requireInstanceId } from '../../wiring/drivers.js'
import { type Instance, openInstance } from '../../wiring/instance.js'
import { startInBackground } from '../up/detach.js'
import { instructions } from './instructions.js'
import { type DemoLoadBalancer, ensureDemoLoadBalancer, showLoadBalancer } from './load-balancer.js'
import { allAnswer, countAnswers, firstSuccess } from './traffic.js'
import { ensureWebServer, WEB_PORT, WEB_SERVERS, type WebServer, type WebServerName } from './web-servers.js'

export const command: Command = { run: demo }

const REQUESTS = 20
/** If everything was killed, Krater must first find the amphorae missing and then rebuild them. */
const TIMEOUT_MS = 90_000

/**
 * Creates a load balancer with two web servers, using only the public API, sends requests to its VIP, and leaves it
 * running. A later run creates only what is missing.
 */
export async function demo(directory: string): Promise<void> {
  requireRoot()
  requireOwnUsers(directory)
  if (runningProcesses(directory).some(({ name }) => name === 'up')) {
    print(`Krater is already running on ${directory}; the demo uses it.`)
  } else {
    print(bold('Starting Krater in the background'))
    await startInBackground(directory)
  }
  requireTraffic(openInstance(directory))
  const api = await signIn(directory, 'krater')
  const networks = await findNetworks(api)
  const servers = await startWebServers(directory, api, networks)
  const balancer = await createLoadBalancer(api, networks, servers)
  await sendRequests(balancer)
  print()
  for (const line of instructions(directory, balancer, api)) print(line)
}

function requireOwnUsers(directory: string): void {
  const { identity } = openInstance(directory).config
  if (identity.external_url === undefined) return
  throw new OperatorError(
    `The demo signs in as a user of Krater's own identity service, but identity.external_url is ${identity.external_url}. Use the openstack client there, or run the demo without that setting and with another KRATER_STATE_DIR.`,
  )
}

function requireTraffic(instance: Instance): void {
  if (networkDriverOf(instance).onHost && computeDriverOf(instance).runsMachines) return
  const networks = networkDrivers.filter(({ onHost }) => onHost).map(({ name }) => name)
  const machines = computeDrivers.filter(({ runsMachines }) => runsMachines).map(({ name }) => name)
  throw new OperatorError(
    `The demo sends real requests. It needs network.driver ${networks.join(' or ')} and compute.driver ${machines.join(' or ')}.`,
  )
}

type Networks = {
  privateNetworkId: string
  privateMtu: number
  privateSubnetId: string
  privatePrefix: number
  publicSubnetId: string
}

const subnetSchema = z.object({ id: z.string(), network_id: z.string(), cidr: z.string() })
const portSchema = z.object({
  id: z.string(),
  mac_address: z.string(),
  fixed_ips: z.array(z.object({ ip_address: z.string() })).min(1),
})

async function findNetworks(api: ApiClient): Promise<Networks> {
  const subnet = async (name: string) => {
    const answer = await api.request('network', 'GET', `/v2.0/subnets?name=${name}`)
    const [found] = z.object({ subnets: z.array(subnetSchema) }).parse(answer).subnets
    if (found === undefined) {
      throw new OperatorError(`The subnet ${name}, which the first start created, no longer exists.`)
    }
    return found
  }
  const [publicSubnet, privateSubnet] = await Promise.all([subnet('public-subnet'), subnet('private-subnet')])
  const answer = await api.request('network', 'GET', `/v2.0/networks/${privateSubnet.network_id}`)
  const { network } = z.object({ network: z.object({ mtu: z.number().optional() }) }).parse(answer)
  return {
    privateNetworkId: privateSubnet.network_id,
    privateMtu: network.mtu ?? 1500,
    privateSubnetId: privateSubnet.id,
    privatePrefix: Number(privateSubnet.cidr.split('/')[1]),
    publicSubnetId: publicSubnet.id,
  }
}

async function startWebServers(directory: string, api: ApiClient, networks: Networks): Promise<WebServer[]> {
  print(bold('\nTwo web servers on the private network, each in its own network namespace'))
  const place = { directory, instanceId: requireInstanceId(directory), fabric: fabricOf(directory) }
  const servers: WebServer[] = []
  for (const name of WEB_SERVERS) {
    const port = await ensurePort(api, name, networks)
    const server: WebServer = {
      name,
      portId: port.id,
      networkId: networks.privateNetworkId,
      mtu: networks.privateMtu,
      macAddress: port.mac_address,
      address: port.fixed_ips[0]?.ip_address ?? '',
      prefix: networks.privatePrefix,
    }
    const wasRunning = await ensureWebServer(place, server)
    servers.push(server)
    print(`  ${name}  ${server.address}:${WEB_PORT}  ${wasRunning ? dim('already running') : 'started'}`)
  }
  return servers
}

async function ensurePort(
  api: ApiClient,
  server: WebServerName,
  networks: Networks,
): Promise<z.output<typeof portSchema>> {
  const name = `krater-demo-${server}`
  const list = await api.request('network', 'GET', `/v2.0/ports?name=${name}`)
  const [present] = z.object({ ports: z.array(portSchema) }).parse(list).ports
  if (present !== undefined) return present
  const answer = await api.request('network', 'POST', '/v2.0/ports', {
    port: { name, network_id: networks.privateNetworkId, fixed_ips: [{ subnet_id: networks.privateSubnetId }] },
  })
  return z.object({ port: portSchema }).parse(answer).port
}

/**
 * Creates the load balancer. Prints when each request was answered, when it became ACTIVE, and when its VIP
 * first answered.
 */
async function createLoadBalancer(
  api: ApiClient,
  networks: Networks,
  servers: readonly WebServer[],
): Promise<DemoLoadBalancer> {
  print(bold('\nA load balancer, created through the public API'))
  const started = performance.now()
  const line = (text: string, milliseconds: number, what: string) => {
    const now = `${Math.round(performance.now() - started)}`.padStart(6)
    print(`  ${dim(`${now} ms`)}  ${text.padEnd(46)}  ${dim(`${what} ${Math.round(milliseconds)} ms`)}`)
  }
  const place = { vipSubnetId: networks.publicSubnetId, memberSubnetId: networks.privateSubnetId, servers }
  const balancer = await ensureDemoLoadBalancer(api, place, (request, milliseconds) =>
    line(request, milliseconds, 'answered after'),
  )
  if (balancer.created.length === 0) print('  Everything already exists.')
  const begun = performance.now()
  const [, first] = await Promise.all([
    untilActive(api, balancer.id).then(() =>
      line('provisioning_status ACTIVE', performance.now() - begun, 'since the last answer'),
    ),
    firstSuccess(balancer.url, TIMEOUT_MS).then(reply => {
      if (reply === null) throw new OperatorError(`${balancer.url} did not answer 200 within ${TIMEOUT_MS / 1000} s.`)
      line(`first 200 through the VIP, from ${reply.body}`, reply.at - begun, 'since the last answer')
      return reply
    }),
  ])
  // A member that was down gets traffic only after its health monitor succeeds.
  if (!(await allAnswer(balancer.url, WEB_SERVERS, TIMEOUT_MS))) {
    throw new OperatorError(`Not every web server answers through ${balancer.url} after ${TIMEOUT_MS / 1000} s.`)
  }
  line('every web server answers', performance.now() - begun, 'since the last answer')
  if (balancer.created.includes('loadbalancer')) {
    print(`  From the first POST to the first 200: ${Math.round(first.at - started)} ms.`)
  }
  return balancer
}

async function untilActive(api: ApiClient, id: string): Promise<void> {
  const until = performance.now() + TIMEOUT_MS
  for (;;) {
    const { provisioning_status: status, fault } = await showLoadBalancer(api, id)
    if (status === 'ACTIVE') return
    if (performance.now() > until) {
      const why = fault === undefined ? '' : ` (${JSON.stringify(fault)})`
      throw new OperatorError(
        `The load balancer is still ${status}${why} after ${TIMEOUT_MS / 1000} s. Run \`krater doctor\` to find faults.`,
      )
    }
    await delay(20)
  }
}

async function sendRequests(balancer: DemoLoadBalancer): Promise<void> {
  print(bold(`\n${REQUESTS} requests to ${balancer.url}`))
  for (const [answer, times] of [...(await countAnswers(balancer.url, REQUESTS))].sort()) {
    print(`  ${WEB_SERVERS.some(name => name === answer) ? green(answer) : answer}  answered ${times} times`)
  }
}
