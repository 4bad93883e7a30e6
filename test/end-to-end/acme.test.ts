import t from 'tap'
import { ask } from '../../controller/cli/commands/demo/traffic.js'
import { loadConfiguration } from '../../controller/config/load.js'
import { connect } from '../../controller/database/connection.js'
import { askHttps } from '../support/clients/https-load.js'
import { startPebble } from '../support/services/pebble.js'
import { createKrater, until } from '../support/worlds/krater.js'

/** Certificates of an external CA, which validates the names at the VIP of a load balancer. */

type Page = { loadbalancers: { id: string; vip_address: string; provisioning_status: string }[] }

t.test('load balancers answer the challenges of a CA, and serve what it issues', async t => {
  const pebble = await startPebble(t, { usualPorts: true })
  const krater = await createKrater(t, {
    KRATER_KEY_MANAGER_ACME_DIRECTORY_URL: pebble.directoryUrl,
    KRATER_KEY_MANAGER_ACME_CA_FILE: pebble.caFile,
    KRATER_KEY_MANAGER_ACME_CONTACT: 'hostmaster@example.com',
    KRATER_KEY_MANAGER_ACME_TERMS_OF_SERVICE_AGREED: 'true',
  })
  const demo = await krater.command('demo')
  t.equal(demo.status, 0, demo.stderr)
  const api = await krater.api()
  const read = async () => {
    const page = (await api.request('load-balancer', 'GET', '/v2/lbaas/loadbalancers')) as Page
    const [found] = page.loadbalancers
    if (found === undefined) throw new Error('The demo made no load balancer')
    return found
  }
  const { id, vip_address: vip } = await read()
  await pebble.resolveTo(vip)
  const applied = () => until('the change is in effect', async () => (await read()).provisioning_status === 'ACTIVE')
  const order = async (...words: string[]) => {
    const { status, stdout, stderr } = await krater.command('certificates', 'order', ...words, '--ca', 'acme')
    t.equal(status, 0, stderr)
    return stdout.trim()
  }
  const transitions = async () => {
    const { events } = (await api.request('load-balancer', 'GET', `/v2/lbaas/loadbalancers/${id}/events`)) as {
      events: { kind: string; amphorae: { how?: string }[] }[]
    }
    return events.filter(({ kind }) => kind === 'applied').map(({ amphorae }) => amphorae[0]?.how)
  }
  let ref = ''

  await t.test('at an HTTP listener, without a reload, while requests go on', async t => {
    // The demo's own changes may have reloaded.
    const before = (await transitions()).length
    const since = async () => {
      const newestFirst = await transitions()
      return newestFirst.slice(0, newestFirst.length - before)
    }
    const traffic = keepAsking(async () => (await ask(`http://${vip}/`))?.status === 200)
    ref = await order('shop.example', 'www.shop.example')
    t.match(await traffic.stop(), { failures: 0 })
    await until('the challenge has gone', async () => (await since()).filter(how => how === 'runtime').length >= 2)
    t.notOk((await since()).includes('reload'))
    const unknown = await ask(`http://${vip}/.well-known/acme-challenge/unknown`)
    t.match(unknown?.body, /^web-[12]$/, 'a member answers for other tokens')
  })

  await t.test('an order ends well, and its challenges go, though processes die while a challenge is open', async t => {
    const { database: urls } = loadConfiguration(krater.directory, krater.environment)
    const database = connect({ url: urls.key_manager ?? '', applicationName: 'acme test' })
    t.teardown(() => database.destroy())
    const challenges = (served: boolean) =>
      database('published_challenge').where({ type: 'http-01' })[served ? 'whereNotNull' : 'whereNull']('served_at')
    const moments = {
      'it is published': { served: false, processes: ['worker', 'key-manager-worker'] },
      'it is served': { served: true, processes: ['key-manager-worker', 'key-manager-api'] },
    } as const
    for (const [moment, { served, processes }] of Object.entries(moments)) {
      const ordered = order(`${served ? 'served' : 'published'}.example`)
      await until(moment, async () => (await challenges(served)).length > 0)
      for (const name of processes) krater.kill(name)
      t.match(await ordered, /containers/, moment)
      await until('no challenge is left', async () => (await database('published_challenge')).length === 0)
    }
    t.equal((await ask(`http://${vip}/`))?.status, 200)
  })

  const root = await pebble.root()
  const https = (name: string) => askHttps({ host: vip, name, tls: { ca: root } })
  const listeners = (await api.request('load-balancer', 'GET', '/v2/lbaas/listeners')) as {
    listeners: { id: string; default_pool_id: string }[]
  }
  const [http] = listeners.listeners

  await t.test('the certificate is served, and so is its renewal', async t => {
    await api.request('load-balancer', 'POST', '/v2/lbaas/listeners', {
      listener: {
        ...{ loadbalancer_id: id, protocol: 'TERMINATED_HTTPS', protocol_port: 443 },
        ...{ default_pool_id: http?.default_pool_id, default_tls_container_ref: ref },
      },
    })
    await applied()
    const { status, serial } = await https('www.shop.example')
    t.equal(status, 200)
    await until(
      'a renewal is allowed',
      () =>
        api.request('key-manager', 'POST', `/v1/certificates/${ref.slice(-36)}/renew`).then(
          () => true,
          () => false,
        ),
      90,
    )
    await until('the renewed certificate is served', async () => (await https('shop.example')).serial !== serial)
  })

  await t.test('at a listener that terminates TLS, if there is no HTTP listener', async t => {
    await api.request('load-balancer', 'PUT', `/v2/lbaas/listeners/${http?.id}`, {
      listener: { admin_state_up: false },
    })
    await applied()
    const traffic = keepAsking(async () => (await https('shop.example')).status === 200)
    await order('other.example')
    await until('the challenge has gone', async () => (await transitions()).filter(how => how === 'reload').length >= 2)
    t.match(await traffic.stop(), { failures: 0 })
  })
})

/** Repeats a request, one after another, until it is told to stop. */
function keepAsking(isAnswered: () => Promise<boolean>) {
  const stopping = new AbortController()
  const counts = { requests: 0, failures: 0 }
  const run = async () => {
    while (!stopping.signal.aborted) {
      counts.requests += 1
      if (!(await isAnswered().catch(() => false))) counts.failures += 1
    }
    return counts
  }
  const running = run()
  return {
    stop: () => {
      stopping.abort()
      return running
    },
  }
}
