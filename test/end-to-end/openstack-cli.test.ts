import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { ask, countAnswers, firstSuccess } from '../../controller/cli/commands/demo/traffic.js'
import { openstackSession } from '../support/clients/openstack-session.js'
import { createMember } from '../support/services/members.js'
import { startKrater, until } from '../support/worlds/krater.js'

type Shown = Record<string, unknown>

t.test('a load balancer from token issue to cascade delete, with the openstack command', async t => {
  t.setTimeout(1_100_000)
  const krater = await startKrater(t)
  /**
   * A new process per command, as when a user types it. It costs seconds, so the other commands share one
   * process.
   */
  const typed = async (line: string) => (await krater.openstack(line.split(' '))) as Shown
  const { show: cli, list, done: silent, run } = openstackSession(t, krater, 'krater')
  const [one, two, spare] = await Promise.all(['one', 'two', 'spare'].map(name => createMember(t, krater, name)))
  if (one === undefined || two === undefined || spare === undefined) throw new Error('No members.')

  t.match(await typed('token issue -f json'), { project_id: /^[0-9a-f]{32}$/ })
  const catalog = await list('catalog list')
  t.same(catalog.map(({ Type }) => Type).sort(), ['identity', 'key-manager', 'load-balancer', 'network'])

  const balancer = await typed('loadbalancer create --name web --vip-subnet-id public-subnet --wait -f json')
  t.match(balancer, { name: 'web', provisioning_status: 'ACTIVE', vip_address: /^10\./ })
  const url = `http://${balancer.vip_address}/`

  const listener = await cli('loadbalancer listener create --name front --protocol HTTP --protocol-port 80 --wait web')
  t.match(listener, { provisioning_status: 'ACTIVE', protocol: 'HTTP', protocol_port: 80, connection_limit: -1 })
  t.match(await firstSuccessOrReply(url), { status: 503 }, 'a listener without a pool answers 503')

  const pool = await cli(
    'loadbalancer pool create --name back --lb-algorithm ROUND_ROBIN --listener front --protocol HTTP --wait',
  )
  t.match(pool, { provisioning_status: 'ACTIVE', lb_algorithm: 'ROUND_ROBIN' })
  for (const member of [one, two]) {
    const shown = await cli(
      `loadbalancer member create --name ${member.name} --address ${member.address} --protocol-port ${member.port} --subnet-id private-subnet --wait back`,
    )
    t.match(shown, { provisioning_status: 'ACTIVE', operating_status: 'NO_MONITOR', weight: 1 })
  }
  await firstSuccess(url, 10_000)
  t.same(
    (await countAnswers(url, 20)).answers,
    new Map([
      ['one', 10],
      ['two', 10],
    ]),
    'both members answer in turn',
  )

  t.match(
    await cli(
      'loadbalancer healthmonitor create --name check --delay 2 --timeout 2 --max-retries 1 --type HTTP --url-path / --wait back',
    ),
    { provisioning_status: 'ACTIVE', max_retries_down: 1, expected_codes: '200', http_method: 'GET' },
  )
  const api = await krater.api()
  const statusOf = async (name: string) => {
    const { members } = (await api.request(
      'load-balancer',
      'GET',
      `/v2/lbaas/pools/${pool.id}/members?name=${name}`,
    )) as {
      members: Shown[]
    }
    return members[0]?.operating_status
  }
  await t.test('a member that dies goes to ERROR and gets no traffic; once back, it is ONLINE', async t => {
    await until(
      'both members are ONLINE',
      async () => (await statusOf('one')) === 'ONLINE' && (await statusOf('two')) === 'ONLINE',
    )
    await two.kill()
    await until('member two is in ERROR', async () => (await statusOf('two')) === 'ERROR')
    t.same((await countAnswers(url, 10)).answers, new Map([['one', 10]]))
    t.match(await cli('loadbalancer show web'), { operating_status: 'DEGRADED' })
    await two.start()
    await until('member two is ONLINE again', async () => (await statusOf('two')) === 'ONLINE')
    t.same(
      (await countAnswers(url, 10)).answers,
      new Map([
        ['one', 5],
        ['two', 5],
      ]),
    )
  })

  await t.test('weight 0 drains a member; a backup serves only when all other members are down', async t => {
    await silent(`loadbalancer member set --weight 0 --wait back one`)
    await until('member one is DRAINING', async () => (await statusOf('one')) === 'DRAINING')
    t.same((await countAnswers(url, 10)).answers, new Map([['two', 10]]))
    await silent(`loadbalancer member set --weight 3 --wait back one`)
    t.same(
      (await countAnswers(url, 20)).answers,
      new Map([
        ['one', 15],
        ['two', 5],
      ]),
      'traffic follows the weights',
    )

    await cli(
      `loadbalancer member create --name spare --address ${spare.address} --protocol-port ${spare.port} --subnet-id private-subnet --enable-backup --wait back`,
    )
    await until('the backup is checked', async () => (await statusOf('spare')) === 'ONLINE')
    t.notOk((await countAnswers(url, 12)).answers.has('spare'))
    await Promise.all([one.kill(), two.kill()])
    await until(
      'both members are in ERROR',
      async () => (await statusOf('one')) === 'ERROR' && (await statusOf('two')) === 'ERROR',
    )
    t.same(await countAnswers(url, 10), { answers: new Map([['spare', 10]]), failures: new Map() })
    await Promise.all([one.start(), two.start()])
    await until('member one serves again', async () => (await ask(url))?.body === 'one')
  })

  await t.test('show, set, list, statistics, status, amphorae, providers', async t => {
    t.match(await cli('loadbalancer listener show front'), { name: 'front', default_pool_id: pool.id })
    await silent('loadbalancer listener set --connection-limit 100 --name front-end front')
    t.match(await cli('loadbalancer listener show front-end'), { connection_limit: 100 })
    await silent('loadbalancer pool set --lb-algorithm LEAST_CONNECTIONS back')
    t.match(await cli('loadbalancer pool show back'), { lb_algorithm: 'LEAST_CONNECTIONS' })
    await silent('loadbalancer set --name web --description edge --tag blue web')
    t.match(await cli('loadbalancer show web'), { description: 'edge', tags: 'blue' })
    t.equal((await list('loadbalancer list --tags blue')).length, 1)
    t.equal((await list('loadbalancer list --tags red')).length, 0)
    await silent('loadbalancer healthmonitor set --delay 3 check')
    t.match(await cli('loadbalancer healthmonitor show check'), { delay: 3 })
    t.ok(Number((await cli('loadbalancer stats show web')).total_connections) > 50)
    t.ok(Number((await cli('loadbalancer listener stats show front-end')).bytes_out) > 0)
    const tree = JSON.parse((await run('loadbalancer status show web')).stdout) as {
      loadbalancer: { listeners: { pools: { members: Shown[] }[] }[] }
    }
    t.equal(tree.loadbalancer.listeners[0]?.pools[0]?.members.length, 3)
    t.match(await list('loadbalancer provider list'), [{ name: 'amphora' }])
    const amphorae = (await krater.openstack('loadbalancer amphora list -f json'.split(' '), 'krater-admin')) as Shown[]
    t.match(
      amphorae.filter(({ status }) => status === 'ALLOCATED'),
      [{ loadbalancer_id: balancer.id, role: 'STANDALONE' }],
    )
    await t.rejects(typed('loadbalancer amphora list'), /Policy does not allow this request to be performed/)
  })

  await t.test('errors show the service’s own message', async t => {
    await t.rejects(silent('loadbalancer create --name x --vip-subnet-id nowhere'), /nowhere/)
    await t.rejects(typed('loadbalancer show nowhere'), /Unable to locate nowhere in loadbalancers/)
    await t.rejects(
      silent('loadbalancer listener create --name again --protocol HTTP --protocol-port 80 web'),
      /HTTP 409/,
    )
    await t.rejects(
      silent('loadbalancer create --name far --vip-subnet-id public-subnet --vip-address 192.168.77.1'),
      /HTTP 400/,
    )
    await t.rejects(silent('loadbalancer delete web'), /HTTP 400/)
  })

  await typed('loadbalancer delete --cascade --wait web')
  t.same(await list('loadbalancer list'), [])
  await until('the VIP answers no more', async () => (await ask(url)) === null)
  const ports = await list('port list')
  t.same(ports.map(({ Name }) => Name).sort(), ['one', 'spare', 'two'], 'only the members’ own ports remain')
})

/** The first complete answer, whatever its status. */
async function firstSuccessOrReply(url: string) {
  for (let attempt = 0; attempt < 100; attempt++) {
    const reply = await ask(url)
    if (reply !== null) return reply
    await delay(50)
  }
  return null
}
