import { X509Certificate } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createCredentials } from '../../controller/certificates/barbican/credentials.js'
import { createServiceUser } from '../../controller/certificates/barbican/service-user.js'
import { createExchange } from '../../controller/http/exchange.js'
import { connectToKeystone } from '../../controller/identity/external/connection.js'
import { signInAtKeystone } from '../../controller/identity/external/sign-in.js'
import { createLog } from '../../controller/log/log.js'
import { type Barbican, startBarbican } from '../support/services/barbican.js'
import { externalIdentityAt } from '../support/services/external-identity.js'
import { type Keystone, startKeystone } from '../support/services/keystone.js'
import { certificateFor, createHttpsSite } from '../support/worlds/https-site.js'
import { createKrater, type Krater, until } from '../support/worlds/krater.js'

/** HTTPS listeners whose certificates are in a real Barbican, beside a real Keystone. */

const serialOf = ({ certificate }: { certificate: string }) =>
  new X509Certificate(certificate).serialNumber.toLowerCase()
const idIn = (ref: string) => ref.slice(-36)

type Ask = (operation: string, body?: object, as?: 'alice' | 'krater') => Promise<{ status: number; body: string }>

/** Users, roles and the catalogue. `krater` is the service user, alice a tenant. */
async function prepareKeystone(keystone: Keystone, urls: Record<string, string>): Promise<void> {
  const token = await keystone.tokenOf('admin', 'admin')
  const as = async (operation: string, body?: object) => {
    const reply = await keystone.call(operation, { token, ...(body !== undefined && { body }) })
    if (reply.status >= 300) throw new Error(`${operation}: ${reply.status} ${JSON.stringify(reply.body)}`)
    return reply
  }
  const idOf = async (kind: string, name: string) =>
    String((await as(`GET /v3/${kind}?name=${name}`)).list(kind)[0]?.id)
  for (const name of ['service', 'creator', 'load-balancer_admin']) await as('POST /v3/roles', { role: { name } })
  for (const name of ['service', 'demo']) await as('POST /v3/projects', { project: { name, domain_id: 'default' } })
  for (const [name, project, roles] of [
    ['krater', 'service', ['service']],
    ['barbican', 'service', ['admin']],
    ['alice', 'demo', ['member', 'creator', 'load-balancer_admin']],
  ] as const) {
    await as('POST /v3/users', { user: { name, domain_id: 'default', password: `${name}-pw` } })
    for (const role of roles)
      await as(
        `PUT /v3/projects/${await idOf('projects', project)}/users/${await idOf('users', name)}/roles/${await idOf('roles', role)}`,
      )
  }
  await as('POST /v3/regions', { region: { id: 'RegionOne' } })
  for (const [type, url] of Object.entries(urls)) {
    const present = (await as(`GET /v3/services?type=${type}`)).list('services')[0]
    const id = present?.id ?? (await as('POST /v3/services', { service: { type, name: type } })).text('service.id')
    for (const kind of ['public', 'internal', 'admin'])
      await as('POST /v3/endpoints', { endpoint: { service_id: id, interface: kind, url, region_id: 'RegionOne' } })
  }
}

/** A private network of alice, and her cloud for the clients of the tests. */
async function prepareTenant(krater: Krater, keystone: Keystone, cacert: string): Promise<void> {
  const auth = { auth_url: keystone.url, username: 'alice', password: 'alice-pw', project_name: 'demo' }
  const names = { user_domain_name: 'Default', project_domain_name: 'Default' }
  const clouds = { clouds: { krater: { auth: { ...auth, ...names }, region_name: 'RegionOne', cacert } } }
  writeFileSync(join(krater.directory, 'clouds.yaml'), JSON.stringify(clouds))
  const api = await krater.api()
  const { network } = (await api.request('network', 'POST', '/v2.0/networks', { network: { name: 'private' } })) as {
    network: { id: string }
  }
  const subnet = { name: 'private-subnet', network_id: network.id, ip_version: 4, cidr: '10.77.0.0/24' }
  await api.request('network', 'POST', '/v2.0/subnets', { subnet })
}

/** Asks Barbican itself. */
async function askerOf(t: Test, keystone: Keystone, barbican: Barbican): Promise<Ask> {
  const exchange = createExchange({
    url: barbican.url,
    security: { insecure: false, ca: readFileSync(barbican.caFile, 'utf8') },
    connectTimeoutSeconds: 5,
    maxConnections: 1,
  })
  t.teardown(exchange.close)
  return async (operation, body, as = 'alice') => {
    const [method = '', path = ''] = operation.split(' ')
    const token = await keystone.tokenOf(as, as === 'alice' ? 'demo' : 'service')
    const headers = { 'X-Auth-Token': token, 'OpenStack-API-Version': 'key-manager 1.1' }
    const request = { method, path, headers, body, maxAnswerBytes: 1_000_000 }
    const { status, bytes } = await exchange.send(request, AbortSignal.timeout(10_000))
    return { status, body: bytes.toString() }
  }
}

t.test('listeners with certificates in Barbican', { timeout: 300_000 }, async t => {
  const keystone = await startKeystone()
  t.teardown(keystone.end)
  const barbican = await startBarbican(keystone.url)
  t.teardown(barbican.end)
  const krater = await createKrater(t, {
    KRATER_IDENTITY_EXTERNAL_URL: keystone.url,
    KRATER_IDENTITY_USERNAME: 'krater',
    KRATER_IDENTITY_PASSWORD: 'krater-pw',
    KRATER_LOAD_BALANCER_KEY_MANAGER_URL: barbican.url,
    KRATER_LOAD_BALANCER_KEY_MANAGER_CA_FILE: barbican.caFile,
  })
  const at = (service: string) => `http://127.0.0.1:${krater.environment[`KRATER_${service}_PORT`]}`
  await prepareKeystone(keystone, {
    identity: keystone.url,
    network: at('NETWORK'),
    'load-balancer': at('LOAD_BALANCER'),
    'key-manager': barbican.url,
  })
  await krater.up()
  await prepareTenant(krater, keystone, barbican.caFile)
  const ask = await askerOf(t, keystone, barbican)
  const consumersOf = async (ref: string) => (await ask(`GET /v1/secrets/${idIn(ref)}/consumers`)).body

  const first = certificateFor('www.example.com')
  const site = await createHttpsSite(t, krater, first)
  t.same(await site.ask('www.example.com'), { status: 200, serial: serialOf(first) })
  const faultOf = async () => {
    const { loadbalancer } = await site.send<{ loadbalancer: { fault: { text: string } | null } }>(
      'GET',
      `loadbalancers/${site.id}`,
    )
    return JSON.stringify(loadbalancer.fault ?? null)
  }
  const second = certificateFor('www.example.com')
  const ref = await site.store(second)

  await t.test('another reference is served, and the load balancer is the consumer of what it uses', async t => {
    const { listener } = await site.send<{ listener: { default_tls_container_ref: string } }>(
      'GET',
      `listeners/${site.listener}`,
    )
    const former = listener.default_tls_container_ref
    await until('it is the consumer', async () => (await consumersOf(former)).includes(site.id))
    await site.update({ default_tls_container_ref: ref })
    t.equal((await site.ask('www.example.com')).serial, serialOf(second))
    await until('it is the consumer of the other', async () => (await consumersOf(ref)).includes(site.id))
    await until('the former secret is released', async () => !(await consumersOf(former)).includes(site.id))
  })

  await t.test('amphorae read with a credential for exactly that, for less than an hour', async t => {
    const token = await keystone.tokenOf('krater', 'service')
    const user = (await keystone.call('GET /v3/auth/tokens', { token, headers: { 'X-Subject-Token': token } })).text(
      'token.user.id',
    )
    const { list } = await keystone.call(`GET /v3/users/${user}/application_credentials`, { token })
    const lent = list('application_credentials') as unknown as {
      name: string
      expires_at: string
      access_rules: { method: string; path: string; service: string }[]
    }[]
    t.equal(lent.length, 1)
    t.match(lent[0]?.name, site.id)
    const minutes = (Date.parse(`${lent[0]?.expires_at}Z`) - Date.now()) / 60_000
    t.ok(minutes > 30 && minutes <= 60, `${minutes} min`)
    t.same(lent[0]?.access_rules.map(({ method, path, service }) => `${service} ${method} ${path}`).sort(), [
      `key-manager GET /v1/secrets/${idIn(ref)}`,
      `key-manager GET /v1/secrets/${idIn(ref)}/payload`,
    ])
  })

  await t.test('such a credential reads nothing else, and nothing after its end', async t => {
    const identity = externalIdentityAt(keystone.url)
    const connection = connectToKeystone(identity)
    t.teardown(connection.close)
    const log = createLog('test', 'silent')
    const user = createServiceUser(async () => signInAtKeystone(connection, identity.credentials), log)
    const credentials = createCredentials(connection, user)
    const other = await site.store(certificateFor('other.example.com'))
    const { userId } = await user.signedIn()
    t.equal((await ask(`PUT /v1/secrets/${idIn(other)}/acl`, { read: { users: [userId] } })).status, 200)
    t.equal((await ask(`GET /v1/secrets/${idIn(other)}`, undefined, 'krater')).status, 200, 'its user may read it')
    const credential = await credentials.create('test', [`/v1/secrets/${idIn(ref)}/payload`], 60)
    const application = { methods: ['application_credential'], application_credential: credential }
    const { id, secret } = application.application_credential
    const login = { auth: { identity: { ...application, application_credential: { id, secret } } } }
    const token = await keystone.tokenFor(login)
    const exchange = createExchange({
      url: barbican.url,
      security: { insecure: true },
      connectTimeoutSeconds: 5,
      maxConnections: 1,
    })
    t.teardown(exchange.close)
    const statusOf = async (method: string, path: string) =>
      (
        await exchange.send(
          { method, path, headers: { 'X-Auth-Token': token, Accept: 'application/octet-stream' }, maxAnswerBytes: 1e6 },
          AbortSignal.timeout(10_000),
        )
      ).status
    t.equal(await statusOf('GET', `/v1/secrets/${idIn(ref)}/payload`), 200)
    for (const [method, path] of [
      ['GET', `/v1/secrets/${idIn(other)}/payload`],
      ['GET', `/v1/secrets/${idIn(ref)}`],
      ['GET', '/v1/secrets'],
      ['DELETE', `/v1/secrets/${idIn(ref)}`],
    ] as const)
      t.equal(await statusOf(method, path), 401, `${method} ${path}`)
    await credentials.end(credential)
    await t.rejects(keystone.tokenFor(login), /answered by 40[14]/)
    t.same(await credentials.list('test'), [])
  })

  await t.test('without Barbican, what serves goes on, and the fault names what is missing', async t => {
    await barbican.stop()
    await site.send('PUT', `pools/${site.pool}`, { pool: { lb_algorithm: 'LEAST_CONNECTIONS' } })
    await site.applied()
    t.equal((await site.ask('www.example.com')).serial, serialOf(second))
    await site.send('PUT', `loadbalancers/${site.id}/failover`)
    await until('the fault names the reference', async () => (await faultOf()).includes(idIn(ref)))
    t.equal((await site.ask('www.example.com')).serial, serialOf(second))
    await barbican.start()
    await until('the failover has ended', async () => (await faultOf()) === 'null')
    await site.applied()
    t.equal((await site.ask('www.example.com')).serial, serialOf(second))
  })

  await t.test('nothing is kept of a load balancer that is gone', async t => {
    await site.send('DELETE', `loadbalancers/${site.id}?cascade=true`)
    await until('it is released', async () => !(await consumersOf(ref)).includes(site.id))
    const token = await keystone.tokenOf('krater', 'service')
    const user = (await keystone.call('GET /v3/auth/tokens', { token, headers: { 'X-Subject-Token': token } })).text(
      'token.user.id',
    )
    await until('no credential is left', async () => {
      const { list } = await keystone.call(`GET /v3/users/${user}/application_credentials`, { token })
      return list('application_credentials').length === 0
    })
    t.same((await keystone.call(`GET /v3/users/${user}/access_rules`, { token })).list('access_rules'), [])
  })
})
