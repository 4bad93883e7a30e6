import type { Test } from 'tap'
import type { ApiClient } from '../../../controller/cli/api-client.js'
import { startIn } from '../clients/steady-asker.js'
import { type Inhabitant, inhabit } from './inhabitant.js'
import { createKrater, type Krater, until } from './krater.js'
import { type Lan, outputIn } from './lan.js'

export type Balancer = { id: string; vip_address: string; provisioning_status: string }
export type Amphora = { id: string; status: string; role: string; lb_network_ip: string }

/** A Krater whose load balancers are on a LAN, beside a client and two servers: wherever its amphorae run. */
export type LanKrater = {
  krater: Krater
  lan: Lan
  /** The client's namespace. */
  client: string
  /** Asks servers on port 8080, TCP and UDP, and VIPs. */
  asker: Inhabitant
  /** Names of the servers. They serve HTTP on port 8000, and TCP and UDP on port 8080. */
  servers: readonly string[]
  subnetId: string
  api: ApiClient
  admin: ApiClient
  /** Creates a load balancer, and waits until it serves. @param listeners bodies of the API, with their pools */
  create: (name: string, listeners: readonly object[], more?: object) => Promise<Balancer>
  remove: (balancer: Balancer) => Promise<void>
  /** Waits until the newest change is in effect. */
  applied: (balancer: Pick<Balancer, 'id'>) => Promise<void>
  /** A listener with a pool of both servers. @param memberPort 8000 or 8080 */
  listener: (protocol: string, port: number, memberPort: number, more?: object) => object
  amphorae: (balancer: Pick<Balancer, 'id'>) => Promise<Amphora[]>
  /** What a VIP answers over HTTP: the name of a server; otherwise another text. */
  get: (url: string, ...options: string[]) => Promise<string>
}

const [CLIENT, ...SERVERS] = [11, 12, 13] as const

const WEB = `require('node:http').createServer((_, response) => response.end(process.argv[1])).listen(8000, '::', () => console.log('ready'))`

/** Starts it. @param settings by their variables */
export async function startLanKrater(
  t: Test,
  settings: Readonly<Record<string, string>>,
  lan: Lan,
): Promise<LanKrater> {
  const client = await lan.machine(CLIENT)
  const servers: string[] = []
  for (const host of SERVERS) {
    const namespace = await lan.machine(host)
    const name = `server${host}`
    servers.push(name)
    const start = (program: string, args: string[]) => {
      const child = startIn(namespace)(program, args)
      t.teardown(() => child.kill('SIGKILL'))
      return child
    }
    start(process.execPath, ['-e', WEB, name])
    await inhabit(name, start)
  }
  const asker = await inhabit('client', (program, args) => {
    const child = startIn(client)(program, args)
    t.teardown(() => child.kill('SIGKILL'))
    return child
  })
  const krater = await createKrater(t, {
    KRATER_NETWORK_PHYSICAL_NETWORKS: `lan:${lan.interfaceName}`,
    KRATER_NETWORK_OUTSIDE: 'false',
    KRATER_COMPUTE_WARM_AMPHORAE: '0',
    ...settings,
  })
  await krater.up()
  const [api, admin] = await Promise.all([krater.api(), krater.api('krater-admin')])
  const network = async (kind: 'network' | 'subnet', values: object) => {
    const answer = await admin.request('network', 'POST', `/v2.0/${kind}s`, { [kind]: values })
    return (answer as Record<typeof kind, { id: string }>)[kind].id
  }
  const provider = { 'provider:network_type': 'flat', 'provider:physical_network': 'lan' }
  const networkId = await network('network', { name: 'lan', shared: true, ...provider })
  const subnetId = await network('subnet', {
    ...{ name: 'lan', network_id: networkId, ip_version: 4, cidr: `${lan.address.v4(0)}/24` },
    ...{ gateway_ip: lan.address.v4(CLIENT), enable_dhcp: false },
    allocation_pools: [{ start: lan.address.v4(100), end: lan.address.v4(200) }],
  })
  const call = (method: string, path: string, body?: object) =>
    api.request('load-balancer', method, `/v2/lbaas/${path}`, body)
  const show = async ({ id }: Pick<Balancer, 'id'>) =>
    ((await call('GET', `loadbalancers/${id}`)) as { loadbalancer: Balancer & { fault?: { text: string } } })
      .loadbalancer
  const applied = async (balancer: Pick<Balancer, 'id'>) => {
    let fault = ''
    await until('it is ACTIVE', async () => {
      const { provisioning_status, fault: found } = await show(balancer)
      fault = found?.text ?? ''
      return provisioning_status === 'ACTIVE'
    }).catch((error: Error) => {
      throw new Error(`${error.message}. ${fault}`)
    })
  }
  return {
    ...{ krater, lan, client, asker, servers, subnetId, api, admin, applied },
    create: async (name, listeners, more = {}) => {
      const { loadbalancer } = (await call('POST', 'loadbalancers', {
        loadbalancer: { name, vip_subnet_id: subnetId, listeners, ...more },
      })) as { loadbalancer: Balancer }
      await applied(loadbalancer)
      return loadbalancer
    },
    remove: async ({ id }) => {
      await call('DELETE', `loadbalancers/${id}?cascade=true`)
      await until('it is gone', () =>
        call('GET', `loadbalancers/${id}`).then(
          () => false,
          () => true,
        ),
      )
    },
    listener: (protocol, port, memberPort, more = {}) => ({
      ...{ name: `${protocol}-${port}`, protocol, protocol_port: port },
      ...more,
      default_pool: {
        ...{ name: `${protocol}-${port}`, lb_algorithm: 'ROUND_ROBIN' },
        protocol: protocol === 'TERMINATED_HTTPS' ? 'HTTP' : protocol,
        members: SERVERS.map(host => ({
          ...{ address: lan.address.v4(host), protocol_port: memberPort, subnet_id: subnetId },
        })),
      },
    }),
    amphorae: async ({ id }) => {
      const path = `/v2/octavia/amphorae?loadbalancer_id=${id}`
      return ((await admin.request('load-balancer', 'GET', path)) as { amphorae: Amphora[] }).amphorae
    },
    get: async (url, ...options) => (await outputIn(client, 'curl', '-s', '-m', '3', ...options, url)).trim(),
  }
}
