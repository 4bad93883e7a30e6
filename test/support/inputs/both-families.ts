import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { type Krater, until } from '../worlds/krater.js'
import { createTenantMachine, type TenantMachine } from '../worlds/tenant-machine.js'

/**
 * Serves as the members, and sends requests to each URL that it is given until it gets an empty line. Prints
 * the result of each request.
 */
const PROGRAM = `const http = require('node:http')
const [port, ...sites] = process.argv.slice(1)
for (const site of sites) {
  const [name, address] = site.split('=')
  http.createServer((_, response) => response.end(name)).listen(Number(port), address, () => console.log('listening'))
}
const ask = url => new Promise(resolve => {
  const request = http.get(url, { agent: false, timeout: 500 }, response => {
    let body = ''
    response.setEncoding('utf8')
    response.on('data', piece => { body += piece })
    response.on('end', () => resolve(response.statusCode === 200 ? body : 'status ' + response.statusCode))
    response.on('error', error => resolve('error ' + error.code))
  })
  request.on('timeout', () => request.destroy())
  request.on('error', error => resolve('error ' + error.code))
})
let round = 0
require('node:readline').createInterface({ input: process.stdin }).on('line', async url => {
  if (url === '') round += 1
  for (const own = round; url !== '' && own === round; ) {
    console.log(url + ' ' + await ask(url))
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}).on('close', () => process.exit())`

const PORT = 8080
const FAMILIES = ['four', 'six'] as const
const VIP_SUBNETS = ['192.168.210.0/24', 'fd66:7a1e:210::/64']
const MEMBER_SUBNETS = ['192.168.211.0/24', 'fd66:7a1e:211::/64']

type Family = (typeof FAMILIES)[number]
export type BothBalancer = { id: string; vips: string[] }
type Shown = { provisioning_status: string; vip_address: string; additional_vips: { ip_address: string }[] }

const vipsOf = ({ vip_address, additional_vips }: Shown) => [
  vip_address,
  ...additional_vips.map(({ ip_address }) => ip_address),
]
const urlOf = (vip: string) => `http://${vip.includes(':') ? `[${vip}]` : vip}/`

/**
 * Load balancers with VIPs and members of both families. A machine of the tenant uses the VIPs without pause
 * from their network, and serves one member of each family on the members' network. It ends with the test.
 */
export async function createBothFamilies(t: Test, krater: Krater) {
  const [api, machine] = await Promise.all([krater.api(), createTenantMachine(t, krater, 'both')])
  const { legs: vipLegs } = await machine.standOn('vips', VIP_SUBNETS)
  const { legs: memberLegs } = await machine.standOn('members', MEMBER_SUBNETS)
  const asking = await startAsking(
    machine,
    memberLegs.map(({ address }, at) => `${FAMILIES[at]}=${address}`),
  )
  const members = memberLegs.map(({ subnetId: subnet_id, address }) => ({ address, protocol_port: PORT, subnet_id }))
  const path = '/v2/lbaas/loadbalancers'
  const show = async ({ id }: BothBalancer) =>
    ((await api.request('load-balancer', 'GET', `${path}/${id}`)) as { loadbalancer: Shown }).loadbalancer

  return {
    namespace: machine.namespace,

    /** Its first VIP is of one family, its second of the other. */
    create: async (first: Family): Promise<BothBalancer> => {
      const [four, six] = vipLegs.map(({ subnetId }) => subnetId)
      const [vip_subnet_id, subnet_id] = first === 'four' ? [four, six] : [six, four]
      const pool = { name: first, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', members }
      const listeners = [{ name: first, protocol: 'HTTP', protocol_port: 80, default_pool: pool }]
      const { loadbalancer } = (await api.request('load-balancer', 'POST', path, {
        loadbalancer: { name: first, vip_subnet_id, additional_vips: [{ subnet_id }], listeners },
      })) as { loadbalancer: Shown & { id: string } }
      return { id: loadbalancer.id, vips: vipsOf(loadbalancer) }
    },

    isActive: async (balancer: BothBalancer) => (await show(balancer)).provisioning_status === 'ACTIVE',
    vipsShown: async (balancer: BothBalancer) => vipsOf(await show(balancer)),

    /** From now on, requests go to every VIP and only their results count. */
    ask: (balancers: readonly BothBalancer[]) => asking.begin(balancers.flatMap(({ vips }) => vips.map(urlOf))),

    /**
     * Waits until both members have answered on every VIP in use; then the requests stop. @throws Error with
     * the answers instead
     */
    untilServing: async (balancers: readonly BothBalancer[]): Promise<void> => {
      const silent = () =>
        balancers.flatMap(({ vips }) => vips).filter(vip => asking.heard(urlOf(vip)).answers.size < members.length)
      await until('every VIP serves', () => silent().length === 0).catch(error => {
        const words = silent().map(vip => `${vip}: ${asking.heard(urlOf(vip)).faults.slice(-3)}`)
        throw new Error(`${error}: ${words.join('; ')}`)
      })
      asking.end()
    },

    /** The longest time in milliseconds without an answer since `ask`, per VIP. */
    longestPauses: ({ vips }: BothBalancer) =>
      vips.map(vip => {
        const { longestMs, at } = asking.heard(urlOf(vip))
        return Math.max(longestMs, Math.round(performance.now() - at))
      }),
  }
}

type Heard = { at: number; answers: Set<string>; faults: string[]; longestMs: number }

async function startAsking(machine: TenantMachine, sites: readonly string[]) {
  const program = machine.start(PROGRAM, [`${PORT}`, ...sites])
  const { stdin, stdout } = program
  if (stdin === null || stdout === null) throw new Error("the tenant's program has no pipes")
  let listening = 0
  const urls = new Map<string, Heard>()
  const heard = (url: string): Heard => {
    const news = urls.get(url)
    if (news === undefined) throw new Error(`${url} got no request`)
    return news
  }
  const end = () => stdin.write('\n')
  createInterface({ input: stdout }).on('line', line => {
    const [url = '', answer = '', ...more] = line.split(' ')
    if (answer === '') {
      listening += 1
      return
    }
    const news = heard(url)
    if (more.length > 0) {
      news.faults.push([answer, ...more].join(' '))
      return
    }
    news.answers.add(answer)
    news.longestMs = Math.max(news.longestMs, Math.round(performance.now() - news.at))
    news.at = performance.now()
  })
  await until('the members listen', () => listening === sites.length)
  return {
    heard,
    end,
    begin: (desired: readonly string[]) => {
      end()
      for (const url of desired) {
        urls.set(url, { at: performance.now(), answers: new Set(), faults: [], longestMs: 0 })
        stdin.write(`${url}\n`)
      }
    },
  }
}
