import t from 'tap'
import { ask } from '../../controller/cli/commands/demo/traffic.js'
import { processesInside } from '../support/faults/crash-amphora.js'
import { balancersOf } from '../support/faults/crash-balancer.js'
import { managementLink } from '../support/faults/management-link.js'
import { createSites } from '../support/services/web-servers.js'
import { startKrater, until } from '../support/worlds/krater.js'

type Amphora = { id: string; status: string; loadbalancer_id: string }

t.test('management network down: an amphora that serves stays, one that stops serving is restarted', async t => {
  const settings = { BEAT_INTERVAL: '0.5', STALE_AFTER: '2' }
  const krater = await startKrater(t, {
    ...Object.fromEntries(Object.entries(settings).map(([name, value]) => [`KRATER_HEALTH_MANAGER_${name}`, value])),
    KRATER_COMPUTE_WARM_AMPHORAE: '0',
  })
  const { one } = await createSites(t, krater, ['one'])
  const [api, admin] = await Promise.all([krater.api(), krater.api('krater-admin')])
  const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
    subnets: { id: string }[]
  }
  const balancers = balancersOf(api, subnets[0]?.id ?? '')
  const balancer = await balancers.create('link', [one])
  await balancers.untilServing(balancer, [one])
  const { amphorae } = (await admin.request('load-balancer', 'GET', '/v2.0/octavia/amphorae')) as {
    amphorae: Amphora[]
  }
  const namespace = `krater-${krater.instance()}-${amphorae[0]?.id}`
  const inside = () => processesInside(namespace).catch(() => [])
  const firstProcess = async () => (await inside()).find(({ isFirst }) => isFirst)?.pid
  const link = managementLink(krater.instance(), krater.directory)
  const before = await firstProcess()

  await link.cut('all')
  await balancers.setMembers(balancer, [one], 2)
  const fault = async () => (await balancers.show(balancer.id))?.fault?.text ?? ''
  await until('the worker tried to reach the amphora and reports a fault', async () =>
    /carries traffic but cannot be reached/.test(await fault()),
  )
  t.equal(await firstProcess(), before)
  t.match(await ask(balancer.url), { status: 200, body: 'one' })

  // Stop its first process too: it would restart the agent, and the agent HAProxy, which would serve again
  // after some seconds.
  for (const { pid, command, isFirst } of await inside()) {
    if (isFirst || /haproxy|agent\.mjs/.test(command)) process.kill(pid, 'SIGSTOP')
  }
  await until('the amphora is restarted', async () => ![undefined, before].includes(await firstProcess()))
  await link.mend('all')
  await balancers.untilServing(balancer, [one])
})
