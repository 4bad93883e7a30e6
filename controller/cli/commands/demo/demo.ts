import { setTimeout as delay } from 'node:timers/promises'
import { Option } from 'commander'
import * as z from 'zod'
import { computeDrivers } from '../../../compute/drivers.js'
import { networkDrivers } from '../../../network/drivers.js'
import { type ApiClient, signIn } from '../../api-client.js'
import type { Command } from '../../command.js'
import { adoptEarlierPorts, attach } from '../../host/attachments.js'
import { requireRoot } from '../../host/checks.js'
import { OperatorError } from '../../operator-error.js'
import { runningProcesses } from '../../state-directory/run-record.js'
import { bold, dim, green, print, red } from '../../terminal.js'
import { computeDriverOf, networkDriverOf } from '../../wiring/drivers.js'
import { type Instance, openInstance } from '../../wiring/instance.js'
import { startInBackground } from '../up/detach.js'
import { type DemoSite, ensureHttpsSite } from './https.js'
import { instructions } from './instructions.js'
import { type DemoLoadBalancer, ensureDemoLoadBalancer, showLoadBalancer } from './load-balancer.js'
import { allAnswer, countAnswers, type Expected, firstSuccess } from './traffic.js'
import { ensureWebServer, WEB_PORT, WEB_SERVERS, type WebServer } from './web-servers.js'

export const command: Command = {
  options: [new Option('--tls', 'serve HTTPS too, with a certificate of the internal CA')],
  run: (directory, { tls }) => demo(directory, tls === true),
}

const REQUESTS = 20
/** If everything was killed, Krater must first find the amphorae missing and then rebuild them. */
const TIMEOUT_MS = 90_000

/**
 * Creates a load balancer with two web servers, using only the public API, sends requests to its VIP, and leaves it
 * running. A later run creates only what is missing.
 */
export async function demo(directory: string, withTls: boolean): Promise<void> {
  requireRoot()
  requireOwnUsers(directory)
  requireTraffic(openInstance(directory))
  if (runningProcesses(directory).some(({ name }) => name === 'up')) {
    print(`Krater is already running on ${directory}; the demo uses it.`)
  } else {
    print(bold('Starting Krater in the background'))
    await startInBackground(directory)
  }
  const api = await signIn(directory, 'krater')
  const subnets = await findSubnets(api)
  const servers = await startWebServers(directory, api)
  const balancer = await createLoadBalancer(api, subnets, servers)
  const site = withTls ? await createSite(directory, api, balancer) : null
  let failed = await sendRequests(balancer.url)
  if (site !== null) failed += await sendRequests(site.url, site.expected)
  print()
  for (const line of instructions(directory, balancer, site, api)) print(line)
  if (failed === 0) return
  throw new OperatorError(
    `${failed} of ${site === null ? REQUESTS : 2 * REQUESTS} requests got no answer from a web server. \`krater explain ${balancer.id}\` says why.`,
  )
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

type Subnets = { publicSubnetId: string; privateSubnetId: string }

async function findSubnets(api: ApiClient): Promise<Subnets> {
  const subnet = async (name: string) => {
    const answer = await api.request('network', 'GET', `/v2.0/subnets?name=${name}`)
    const [found] = z.object({ subnets: z.array(z.object({ id: z.string() })) }).parse(answer).subnets
    if (found !== undefined) return found.id
    throw new OperatorError(`The subnet ${name}, which the first start created, no longer exists.`)
  }
  const [publicSubnetId, privateSubnetId] = await Promise.all([subnet('public-subnet'), subnet('private-subnet')])
  return { publicSubnetId, privateSubnetId }
}

async function startWebServers(directory: string, api: ApiClient): Promise<WebServer[]> {
  print(bold('\nTwo web servers on the private network, each in its own network namespace'))
  await adoptEarlierPorts(directory, api, 'private')
  const servers: WebServer[] = []
  for (const name of WEB_SERVERS) {
    const { addresses, place } = await attach(directory, {
      name,
      cloud: 'krater',
      network: 'private',
      address: null,
      securityGroups: [],
      place: null,
    })
    // The first is its IPv4 address.
    const [address = ''] = addresses.map(text => text.split('/')[0])
    const wasRunning = ensureWebServer(directory, name, place)
    servers.push({ name, address })
    print(`  ${name}  ${address}:${WEB_PORT}  ${wasRunning ? dim('already running') : 'started'}`)
  }
  return servers
}

/**
 * Creates the load balancer. Prints when each request was answered, when it became ACTIVE, and when its VIP
 * first answered.
 */
async function createLoadBalancer(
  api: ApiClient,
  subnets: Subnets,
  servers: readonly WebServer[],
): Promise<DemoLoadBalancer> {
  print(bold('\nA load balancer, created through the public API'))
  const started = performance.now()
  const line = (text: string, milliseconds: number, what: string) => {
    const now = `${Math.round(performance.now() - started)}`.padStart(6)
    print(`  ${dim(`${now} ms`)}  ${text.padEnd(46)}  ${dim(`${what} ${Math.round(milliseconds)} ms`)}`)
  }
  const place = { vipSubnetId: subnets.publicSubnetId, memberSubnetId: subnets.privateSubnetId, servers }
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

/** Prints when the certificate was there, and when it was first served. */
async function createSite(directory: string, api: ApiClient, balancer: DemoLoadBalancer): Promise<DemoSite> {
  print(bold('\nHTTPS, with a certificate of the internal CA'))
  const report = (text: string, milliseconds: number) =>
    print(`  ${text.padEnd(46)}  ${dim(`after ${Math.round(milliseconds)} ms`)}`)
  const site = await ensureHttpsSite(directory, api, balancer, report)
  const begun = performance.now()
  const reply = await firstSuccess(site.url, TIMEOUT_MS, site.expected)
  if (reply === null) {
    throw new OperatorError(
      `${site.url} did not answer 200 with a certificate for ${site.expected.name} within ${TIMEOUT_MS / 1000} s. \`krater explain ${balancer.id}\` says why.`,
    )
  }
  report(`first 200 over TLS, from ${reply.body}`, reply.at - begun)
  return site
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

/** @returns how many requests no server answered */
async function sendRequests(url: string, expected?: Expected): Promise<number> {
  print(bold(`\n${REQUESTS} requests to ${url}`))
  const { answers, failures } = await countAnswers(url, REQUESTS, expected)
  for (const [name, times] of [...answers].sort()) {
    print(`  ${WEB_SERVERS.some(server => server === name) ? green(name) : name}  answered ${times} times`)
  }
  for (const [what, times] of [...failures].sort()) print(`  ${red(what)}  ${times} times`)
  return [...failures.values()].reduce((sum, times) => sum + times, 0)
}
