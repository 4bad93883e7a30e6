import { setTimeout as delay } from 'node:timers/promises'
import { signIn } from '../../controller/cli/api-client.js'
import { instanceId } from '../../controller/cli/state-directory/instance.js'
import { managementLink } from '../support/faults/management-link.js'
import { measure, type Neighbour, neighbourOf } from './doors.js'
import { type BenchInstance, startInstance } from './instance.js'
import { percentile } from './measure.js'
import { trafficOf } from './worst-tenant.js'

const REPAIRS = 20
const FAILOVERS = 5
const BROKEN = 10
const PORTS_AT_ONCE = 8
/** More than the addresses of any network here. */
const MAX_PORTS = 8192
const MAX_MADE_MS = 300_000

/**
 * Repairs and failovers of one tenant's amphora beside another tenant that has taken every address it can get,
 * and ten of whose load balancers are unreachable.
 * @returns a table, as Markdown
 */
export async function benchRepairBeside(root: string): Promise<string> {
  // More amphorae die here than the restart limits allow.
  const limits = { KRATER_HEALTH_MANAGER_RESTART_LIMIT: '100', KRATER_HEALTH_MANAGER_PROJECT_RESTART_LIMIT: '100' }
  const instance = await startInstance(root, limits, 28_900)
  try {
    await instance.krater('demo')
    const traffic = await trafficOf(instance)
    const hostile = await neighbourOf(instance, 'hostile')
    const rows: string[] = []
    const measureAll = async (beside: string) => {
      for (const { what, act, count } of [
        { what: 'repair of a killed amphora, to traffic', act: traffic.repair, count: REPAIRS },
        { what: 'failover, until it is ACTIVE', act: traffic.failover, count: FAILOVERS },
      ]) {
        const { sorted, denied } = await measure(act, count)
        const times = [0.5, 0.99].map(share => (sorted.length === 0 ? '-' : percentile(sorted, share).toFixed(0)))
        rows.push(`| ${[beside, what, count, ...times, denied].join(' | ')} |`)
        process.stderr.write(`${rows.at(-1)}\n`)
      }
    }
    await measureAll('nobody')
    const { made, refusal } = await takePorts(instance, hostile)
    await measureAll(`${made} ports on the public network, the next refused (${refusal})`)
    await breakBalancers(instance, hostile)
    await measureAll(`the same, and ${BROKEN} load balancers out of reach`)
    return [
      '| beside | what | times | p50 ms | p99 ms | failed |',
      '| --- | --- | ---: | ---: | ---: | ---: |',
      ...rows,
    ].join('\n')
  } finally {
    await instance.remove()
  }
}

async function publicSubnet({ api }: BenchInstance): Promise<{ id: string; network_id: string }> {
  const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
    subnets: { id: string; network_id: string }[]
  }
  if (subnets[0] === undefined) throw new Error('There is no public subnet.')
  return subnets[0]
}

/** Takes addresses of the public network until it gets no more. */
async function takePorts(instance: BenchInstance, { token }: Neighbour): Promise<{ made: number; refusal: string }> {
  const { network_id } = await publicSubnet(instance)
  const url = `${instance.api.urlOf('network')}/v2.0/ports`
  const headers = { 'X-Auth-Token': token, 'Content-Type': 'application/json' }
  const body = JSON.stringify({ port: { network_id } })
  let made = 0
  let refusal = ''
  const take = async () => {
    while (refusal === '' && made < MAX_PORTS) {
      const answer = await fetch(url, { method: 'POST', headers, body })
      const text = await answer.text()
      if (answer.ok) made++
      // A sender that exceeds the rate limit pauses.
      else if (answer.status === 429) await delay(1000)
      else refusal = `${answer.status} ${(JSON.parse(text) as { NeutronError: { type: string } }).NeutronError.type}`
    }
  }
  await Promise.all(Array.from({ length: PORTS_AT_ONCE }, take))
  return { made, refusal }
}

/** Creates load balancers and takes their management interfaces down. */
async function breakBalancers(instance: BenchInstance, { token }: Neighbour): Promise<void> {
  const { directory, api } = instance
  const { id: subnet } = await publicSubnet(instance)
  const url = `${api.urlOf('load-balancer')}/v2.0/lbaas/loadbalancers`
  const headers = { 'X-Auth-Token': token, 'Content-Type': 'application/json' }
  for (let made = 0; made < BROKEN; made++) {
    const body = JSON.stringify({ loadbalancer: { name: `broken-${made}`, vip_subnet_id: subnet } })
    const answer = await fetch(url, { method: 'POST', headers, body })
    if (!answer.ok) throw new Error(`A load balancer was answered by ${answer.status}: ${await answer.text()}`)
  }
  type Balancer = { id: string; provisioning_status: string }
  let balancers: Balancer[] = []
  for (const until = performance.now() + MAX_MADE_MS; performance.now() < until; await delay(500)) {
    balancers = ((await (await fetch(url, { headers })).json()) as { loadbalancers: Balancer[] }).loadbalancers
    if (balancers.every(({ provisioning_status }) => provisioning_status === 'ACTIVE')) break
  }
  const admin = await signIn(directory, 'krater-admin')
  const { amphorae } = (await admin.request('load-balancer', 'GET', '/v2.0/octavia/amphorae?status=ALLOCATED')) as {
    amphorae: { id: string; loadbalancer_id: string }[]
  }
  const theirs = amphorae.filter(({ loadbalancer_id }) => balancers.some(({ id }) => id === loadbalancer_id))
  if (theirs.length !== BROKEN) throw new Error(`There are ${theirs.length} of ${BROKEN} amphorae.`)
  const instanceName = instanceId(directory) ?? ''
  await managementLink(instanceName, directory).cut(theirs.map(({ id }) => id))
}
