import { setTimeout as delay } from 'node:timers/promises'
import { firstSuccess } from '../../controller/cli/commands/demo/traffic.js'
import { type BenchInstance, startInstance } from './instance.js'
import { percentile } from './measure.js'

const BASE = '/v2.0/lbaas'
const ROUNDS = 5

type Shown = { id: string; vip_address: string; provisioning_status: string }

/**
 * Measures the time from the POST of a whole load balancer (listener, pool, two members) until the first 200
 * through its VIP, with an amphora from the warm pool and with a new one. @returns a table, as Markdown
 */
export async function benchFirstTraffic(root: string): Promise<string> {
  // A project gets at most as many warm amphorae per minute as are ready.
  const warm = await measure(root, ROUNDS, 28_300)
  const cold = await measure(root, 0, 28_400)
  return [
    `A load balancer with listener, pool and two members in one POST, ${ROUNDS} times each; milliseconds, median and worst.`,
    '| amphora | the API has answered | first 200 after the answer, median | worst |\n| --- | ---: | ---: | ---: |\n' +
      `| from the warm pool | ${warm} |\n| new | ${cold} |`,
  ].join('\n\n')
}

async function measure(root: string, warmAmphorae: number, firstPort: number): Promise<string> {
  const instance = await startInstance(root, { KRATER_COMPUTE_WARM_AMPHORAE: `${warmAmphorae}` }, firstPort)
  try {
    await instance.krater('demo')
    const answered: number[] = []
    const served: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      await untilWarm(instance, warmAmphorae)
      const asked = performance.now()
      const { loadbalancer } = (await instance.api.request('load-balancer', 'POST', `${BASE}/loadbalancers`, {
        loadbalancer: await oneMoreOfDemo(instance),
      })) as { loadbalancer: Shown }
      const answer = performance.now()
      const first = await firstSuccess(`http://${loadbalancer.vip_address}/`, 30_000)
      if (first === null) throw new Error('No answer came through the VIP within 30 s.')
      answered.push(answer - asked)
      served.push(first.at - answer)
      await instance.api.request('load-balancer', 'DELETE', `${BASE}/loadbalancers/${loadbalancer.id}?cascade=true`)
    }
    const at = (values: number[], share: number) =>
      percentile(
        values.toSorted((a, b) => a - b),
        share,
      ).toFixed(0)
    return `${at(answered, 0.5)} | ${at(served, 0.5)} | ${at(served, 1)}`
  } finally {
    await instance.remove()
  }
}

/** Another load balancer with the demonstration's web servers as members, as the body of a POST. */
export async function oneMoreOfDemo({ api }: BenchInstance): Promise<Record<string, unknown>> {
  const list = async (path: string) => (await api.request('network', 'GET', path)) as Record<string, unknown[]>
  const { subnets = [] } = await list('/v2.0/subnets')
  const idOf = (name: string) => (subnets as { id: string; name: string }[]).find(subnet => subnet.name === name)?.id
  const { ports = [] } = await list('/v2.0/ports?name=web-1&name=web-2')
  const members = (ports as { fixed_ips: { ip_address: string }[] }[]).map(port => ({
    address: port.fixed_ips[0]?.ip_address,
    protocol_port: 8080,
    subnet_id: idOf('private-subnet'),
  }))
  const pool = { name: 'pool', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', members }
  return {
    vip_subnet_id: idOf('public-subnet'),
    listeners: [{ protocol: 'HTTP', protocol_port: 80, default_pool: pool }],
  }
}

/** The pool refills in the background; a round begins when it is full. */
async function untilWarm(instance: BenchInstance, count: number): Promise<void> {
  const until = performance.now() + 30_000
  while (performance.now() < until) {
    const { stdout } = (await instance.krater('amphora', 'list')) as { stdout: string }
    if (stdout.split('READY').length > count) return
    await delay(200)
  }
  throw new Error('No amphora became ready within 30 s.')
}
