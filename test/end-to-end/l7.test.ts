import { request } from 'node:http'
import t from 'tap'
import { firstSuccess } from '../../controller/cli/commands/demo/traffic.js'
import { createMember } from '../support/services/members.js'
import { startKrater, until } from '../support/worlds/krater.js'

const BASE = '/v2/lbaas'

type Balancer = { id: string; vip_address: string; listeners: { id: string }[]; pools: { id: string; name: string }[] }

t.test('L7 policies set through the API route the VIP’s traffic', async t => {
  const krater = await startKrater(t)
  const api = await krater.api()
  const [one, two] = await Promise.all([createMember(t, krater, 'one'), createMember(t, krater, 'two')])
  const send = async <T>(method: string, path: string, body?: object) =>
    (await api.request('load-balancer', method, `${BASE}/${path}`, body)) as T
  const subnetId = async (name: string) => {
    const { subnets } = (await api.request('network', 'GET', `/v2.0/subnets?name=${name}`)) as {
      subnets: { id: string }[]
    }
    return subnets[0]?.id
  }
  const privateSubnet = await subnetId('private-subnet')
  const pool = (name: string, member: { address: string; port: number }) => ({
    ...{ name, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
    members: [{ address: member.address, protocol_port: member.port, subnet_id: privateSubnet }],
  })
  const { loadbalancer: balancer } = await send<{ loadbalancer: Balancer }>('POST', 'loadbalancers', {
    loadbalancer: {
      vip_subnet_id: await subnetId('public-subnet'),
      pools: [pool('one', one), pool('two', two)],
      listeners: [{ protocol: 'HTTP', protocol_port: 80, default_pool: { name: 'one' } }],
    },
  })
  const [listener] = balancer.listeners
  const poolTwo = balancer.pools.find(({ name }) => name === 'two')?.id
  const applied = () =>
    until('the change is in effect', async () => {
      const { loadbalancer } = await send<{ loadbalancer: { provisioning_status: string } }>(
        'GET',
        `loadbalancers/${balancer.id}`,
      )
      return loadbalancer.provisioning_status === 'ACTIVE'
    })
  const policy = async (l7policy: object, ...rules: object[]) => {
    const made = await send<{ l7policy: { id: string } }>('POST', 'l7policies', {
      l7policy: { listener_id: listener?.id, ...l7policy },
    })
    await applied()
    for (const rule of rules) {
      await send('POST', `l7policies/${made.l7policy.id}/rules`, { rule })
      await applied()
    }
    return made.l7policy.id
  }
  const ask = (path: string, headers = {}) => answerTo(balancer.vip_address, path, headers)

  await applied()
  t.match(await firstSuccess(`http://${balancer.vip_address}/`, 20_000), { status: 200, body: 'one' })
  t.equal(await ask('/api/x'), '200 one', 'without policies, all requests reach the default pool')

  const isApi = { type: 'PATH', compare_type: 'STARTS_WITH', value: '/api' }
  const reject = await policy({ action: 'REJECT' }, isApi)
  t.equal(await ask('/api/x'), '403')
  t.equal(await ask('/'), '200 one')

  const isBeta = { type: 'COOKIE', compare_type: 'EQUAL_TO', key: 'beta', value: 'yes' }
  const toTwo = await policy({ action: 'REDIRECT_TO_POOL', redirect_pool_id: poolTwo, position: 1 }, isBeta)
  t.equal(await ask('/api/x', { Cookie: 'beta=yes' }), '200 two', 'the pool policy comes before the reject policy')
  t.equal(await ask('/api/x'), '403')
  await until('the health manager reports the pool', async () => {
    const { pool: shown } = await send<{ pool: { operating_status: string } }>('GET', `pools/${poolTwo}`)
    return shown.operating_status === 'ONLINE'
  })

  await send('PUT', `l7policies/${toTwo}`, { l7policy: { position: 2 } })
  await applied()
  t.equal(await ask('/api/x', { Cookie: 'beta=yes' }), '403', 'the reject policy comes before the pool policy')
  t.equal(await ask('/', { Cookie: 'beta=yes' }), '200 two')

  await policy(
    { action: 'REDIRECT_PREFIX', redirect_prefix: 'https://example.org/%41', redirect_http_code: 308, position: 1 },
    { type: 'HOST_NAME', compare_type: 'REGEX', value: '^(old|older)\\.example\\.org$' },
  )
  t.equal(await ask('/api/x?y=%20', { Host: 'OLD.example.org:80' }), '308 https://example.org/%41/api/x?y=%20')

  await send('PUT', `l7policies/${reject}`, { l7policy: { admin_state_up: false } })
  await applied()
  t.equal(await ask('/api/x'), '200 one')
  await send('DELETE', `l7policies/${toTwo}`)
  await applied()
  t.equal(await ask('/', { Cookie: 'beta=yes' }), '200 one')
})

/** Status, and the location of a redirect or the body of a 200. */
function answerTo(host: string, path: string, headers: Record<string, string>): Promise<string> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ host, path, headers, agent: false, timeout: 5_000 }, response => {
      const { statusCode, headers: answered } = response
      let body = ''
      response.setEncoding('utf8').on('data', piece => {
        body += piece
      })
      response.once('end', () => {
        const rest = statusCode === 200 ? body : (answered.location ?? '')
        resolve(`${statusCode} ${rest}`.trim())
      })
    })
    outgoing.once('timeout', () => outgoing.destroy(new Error('no answer within 5 s')))
    outgoing.once('error', reject)
    outgoing.end()
  })
}
