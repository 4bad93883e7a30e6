import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect, type PeerCertificate } from 'node:tls'
import { promisify } from 'node:util'
import t from 'tap'
import { ApiRefusal } from '../../controller/cli/api-client.js'
import { runningProcesses } from '../../controller/cli/state-directory/run-record.js'
import { makeBundle, makePair, type Pair } from '../support/inputs/certificates.js'
import { createKrater, type Krater, NOOP_DRIVERS, startKrater, until } from '../support/worlds/krater.js'

const run = promisify(execFile)

/** A shell command after `source openrc`, as an ordinary user of this Krater types it. */
const afterOpenrc = (krater: Krater, line: string) =>
  run('bash', ['-ec', `source ${join(krater.directory, 'openrc')}; ${line}`], {
    env: { PATH: process.env.PATH, HOME: krater.environment.HOME ?? '/', PYTHONWARNINGS: 'ignore' },
    timeout: 120_000,
  }).then(({ stdout }) => stdout)

t.test(
  'one switch: the demo, the openstack command, curl, explain and doctor work over TLS with the internal CA',
  async t => {
    t.setTimeout(1_100_000)
    const krater = await createKrater(t, { KRATER_API_TLS_INTERNAL_CA: 'true' })
    const demo = await krater.command('demo')
    t.equal(demo.status, 0, demo.stderr)
    for (const api of ['identity', 'load balancer', 'network']) {
      t.match(demo.stdout, new RegExp(`${api} API +https://127\\.0\\.0\\.1:`), api)
    }

    const catalog = (await krater.openstack(['catalog', 'list', '-f', 'json'], 'krater-admin')) as {
      Endpoints: { url: string }[]
    }[]
    const urls = catalog.flatMap(({ Endpoints }) => Endpoints.map(({ url }) => url))
    t.equal(urls.length, 12)
    t.same(
      urls.filter(url => !url.startsWith('https://')),
      [],
    )
    t.match(await krater.openstack(['loadbalancer', 'show', 'krater-demo', '-f', 'json']), {
      provisioning_status: 'ACTIVE',
    })
    const token = await afterOpenrc(krater, 'openstack token issue -f value -c project_id')
    t.match(token, /^[0-9a-f]{32}$/m, 'openrc names the CA file')
    const stored = await afterOpenrc(
      krater,
      `openstack secret store --name greeting --payload hello -f value -c 'Secret href'`,
    )
    t.match(stored, /^https:\/\/127\.0\.0\.1:\d+\/v1\/secrets\//)

    const ca = join(krater.directory, 'api-ca.pem')
    t.equal(statSync(ca).mode & 0o777, 0o644)
    const url = (await krater.api()).urlOf('load-balancer')
    const { stdout } = await run('curl', ['-sS', '--cacert', ca, `${url}/`], { timeout: 20_000 })
    t.match(JSON.parse(stdout), { versions: [{ links: [{ href: /^https:/ }] }] })
    await t.rejects(run('curl', ['-sS', `${url}/`], { timeout: 20_000 }), /certificate/, 'the CA is needed')
    const plain = await run('curl', ['-sS', url.replace('https', 'http')], { timeout: 20_000 })
    t.match(plain.stdout, /This port speaks HTTPS/)

    const explained = await krater.command('explain', 'krater-demo')
    t.equal(explained.status, 0, explained.stdout + explained.stderr)
    const doctor = await krater.command('doctor')
    for (const api of ['identity', 'load balancer', 'network', 'key manager']) {
      t.match(doctor.stdout, new RegExp(`^${api} API TLS +ok +127\\.0\\.0\\.1, valid until `, 'm'))
    }
    t.equal(doctor.status, 0, doctor.stdout)
    t.same(
      readdirSync(join(krater.directory, 'keys')).filter(name => name.startsWith('api')),
      ['api-ca'],
      'the keys of the APIs are in no file',
    )
  },
)

/** The common names in the certificates that the APIs present, or another part of them. */
async function presented(
  krater: Krater,
  partOf = ({ subject }: PeerCertificate): unknown => subject.CN,
): Promise<Record<string, string>> {
  const names = await Promise.all(
    SERVICES.map(async service => {
      const socket = connect({ host: '127.0.0.1', port: portOf(krater, service), rejectUnauthorized: false })
      try {
        await once(socket, 'secureConnect', { signal: AbortSignal.timeout(10_000) })
        return [service, String(partOf(socket.getPeerCertificate()))]
      } finally {
        socket.destroy()
      }
    }),
  )
  return Object.fromEntries(names)
}

const SERVICES = ['IDENTITY', 'NETWORK', 'LOAD_BALANCER', 'KEY_MANAGER'] as const
const portOf = (krater: Krater, service: (typeof SERVICES)[number]) =>
  Number(krater.environment[`KRATER_${service}_PORT`])
const everywhere = (name: string) => Object.fromEntries(SERVICES.map(service => [service, name]))

const root = makePair({ subject: '/CN=root' })
const pairFor = (name: string, san = 'IP:127.0.0.1', args: string[] = []): Pair =>
  makePair({ subject: `/CN=${name}`, issuer: root, args: ['-addext', `subjectAltName=${san}`, ...args] })

t.test('a certificate of the operator’s: read again when it changes; a broken file keeps the former', async t => {
  t.setTimeout(1_100_000)
  const directory = t.testdir({ 'root.pem': root.certificate, 'cert.pem': '', 'key.pem': '' })
  const [caFile, certificateFile, keyFile] = ['root.pem', 'cert.pem', 'key.pem'].map(name => join(directory, name))
  const write = ({ certificate, privateKey }: Pair) => {
    writeFileSync(keyFile!, privateKey, { mode: 0o600 })
    writeFileSync(certificateFile!, certificate)
  }
  write(pairFor('first'))
  const krater = await createKrater(t, {
    ...NOOP_DRIVERS,
    KRATER_API_TLS_CERTIFICATE_FILE: certificateFile!,
    KRATER_API_TLS_KEY_FILE: keyFile!,
    KRATER_API_TLS_CA_FILE: caFile!,
  })
  await krater.up()
  t.same(await presented(krater), everywhere('first'))
  t.match(await krater.openstack(['token', 'issue', '-f', 'json']), { project_id: /./ })
  t.match(readFileSync(join(krater.directory, 'clouds.yaml'), 'utf8'), `cacert: ${caFile}`)

  writeFileSync(certificateFile!, 'nonsense')
  const log = () => readFileSync(join(krater.directory, 'log/identity-api.log'), 'utf8')
  await until('the broken file is logged', () =>
    /No new certificate from .*: there is no certificate in PEM\. The APIs keep/.test(log()),
  )
  t.same(await presented(krater), everywhere('first'))
  t.match(await krater.openstack(['token', 'issue', '-f', 'json']), { project_id: /./ })

  const pids = krater.running()
  write(pairFor('second', 'IP:127.0.0.1', ['-days', '3']))
  await until('every API presents the new one', async () =>
    Object.values(await presented(krater)).every(name => name === 'second'),
  )
  t.same(krater.running(), pids)
  const soon = await krater.command('doctor')
  t.match(soon.stdout, /identity API TLS +fault +its certificate expires on \d{4}-\d\d-\d\d\n +what to do: renew it/)

  write(pairFor('third', 'DNS:cloud.example'))
  await until('it is presented', async () => (await presented(krater)).IDENTITY === 'third')
  const doctor = await krater.command('doctor')
  t.equal(doctor.status, 1)
  t.match(
    doctor.stdout,
    /identity API TLS +fault +its certificate does not name 127\.0\.0\.1.*\n +what to do: get a certificate that names it, or set identity\.public_url/,
  )
  const refused = await krater.command('explain', 'nothing')
  t.match(refused.stderr, /its certificate is not accepted: .*127\.0\.0\.1/i)

  await krater.command('down')
  writeFileSync(certificateFile!, 'nonsense')
  const broken = await krater.command('up', '--detach')
  t.equal(broken.status, 1)
  t.match(
    broken.stderr,
    /api\.tls\.certificate_file \(\S+\) and api\.tls\.key_file \(\S+\) cannot be used: there is no certificate in PEM\./,
  )
})

t.test('a certificate in the key manager, a PKCS#12 secret or a container, which Krater’s own user reads', async t => {
  t.setTimeout(1_100_000)
  const directory = t.testdir({ 'root.pem': root.certificate })
  const krater = await startKrater(t, { ...NOOP_DRIVERS, KRATER_API_TLS_INTERNAL_CA: 'true' })
  const [api, administrator] = [await krater.api(), await krater.api('krater-admin')]
  const { users } = (await administrator.request('identity', 'GET', '/users?name=octavia')) as {
    users: { id: string }[]
  }
  const shared = async (path: string, body: object) => {
    const made = (await api.request('key-manager', 'POST', path, body)) as Record<string, string>
    const ref = made.secret_ref ?? made.container_ref ?? ''
    const acl = { read: { 'project-access': true, users: [users[0]?.id] } }
    await api.request('key-manager', 'PUT', `${new URL(ref).pathname}/acl`, acl)
    return ref
  }
  const text = (payload: string) => shared('/v1/secrets', { payload, payload_content_type: 'text/plain' })
  const [bundled, contained] = [pairFor('bundled'), pairFor('contained')]
  const bundle = await shared('/v1/secrets', {
    payload: makeBundle(bundled).toString('base64'),
    ...{ payload_content_type: 'application/octet-stream', payload_content_encoding: 'base64' },
  })
  const container = await shared('/v1/containers', {
    type: 'certificate',
    secret_refs: [
      { name: 'certificate', secret_ref: await text(contained.certificate) },
      { name: 'private_key', secret_ref: await text(contained.privateKey) },
    ],
  })
  delete krater.environment.KRATER_API_TLS_INTERNAL_CA
  for (const [ref, name] of [
    [bundle, 'bundled'],
    [container, 'contained'],
  ] as const) {
    const settings = [
      'api.tls.internal_ca=false',
      `api.tls.reference=${ref}`,
      `api.tls.ca_file=${join(directory, 'root.pem')}`,
    ]
    t.equal((await krater.command('settings', ...settings)).status, 0)
    await krater.command('down')
    await krater.up()
    await until(`every API presents the certificate ${name}`, async () =>
      Object.values(await presented(krater)).every(each => each === name),
    )
    t.match(await krater.openstack(['token', 'issue', '-f', 'json']), { project_id: /./ }, name)
    t.equal((await krater.command('doctor')).status, 0)
  }
  const audit = join(directory, 'audit')
  await until('the reads are in the audit log', async () => {
    await krater.command('key-manager', 'audit', 'export', '--output', audit)
    return readFileSync(audit, 'utf8').includes(users[0]?.id ?? 'nobody')
  })
  const files = readdirSync(krater.directory, { recursive: true, encoding: 'utf8' }).map(name =>
    join(krater.directory, name),
  )
  const body = contained.privateKey.split('\n')[1] ?? ''
  const holders = files.filter(file => statSync(file).isFile() && readFileSync(file).includes(body))
  t.same(holders, [], 'its key is in no file')
})

t.test(
  'a certificate that an order issued: when Krater renews it, the APIs present the new one without a restart',
  async t => {
    t.setTimeout(1_100_000)
    const krater = await createKrater(t, {
      ...NOOP_DRIVERS,
      KRATER_API_TLS_INTERNAL_CA: 'true',
      KRATER_KEY_MANAGER_CERTIFICATE_AUTHORITY_PERMITTED_NAMES: 'localhost',
    })
    for (const service of SERVICES) {
      const path = service === 'IDENTITY' ? '/v3' : ''
      krater.environment[`KRATER_${service}_PUBLIC_URL`] = `https://localhost:${portOf(krater, service)}${path}`
    }
    await krater.up()
    const [api, administrator] = [await krater.api(), await krater.api('krater-admin')]
    const get = async (path: string) => (await api.request('key-manager', 'GET', path)) as Record<string, unknown>
    const meta = { name: 'api', subject_dn: 'CN=localhost', algorithm: 'ec' }
    const order = (await api.request('key-manager', 'POST', '/v1/orders', { type: 'certificate', meta })) as {
      order_ref: string
    }
    const orderPath = new URL(order.order_ref).pathname
    await until('the certificate is issued', async () => (await get(orderPath)).status === 'ACTIVE')
    const container = new URL((await get(orderPath)).container_ref as string)
    const { users } = (await administrator.request('identity', 'GET', '/users?name=octavia')) as {
      users: { id: string }[]
    }
    const parts = (await get(container.pathname)).secret_refs as { secret_ref: string }[]
    for (const ref of [container.href, ...parts.map(part => part.secret_ref)]) {
      const acl = { read: { 'project-access': true, users: [users[0]?.id] } }
      await api.request('key-manager', 'PUT', `${new URL(ref).pathname}/acl`, acl)
    }
    const [ca] = (await get('/v1/cas')).cas as string[]
    const caFile = join(t.testdir({}), 'root.pem')
    const curl = ['-sS', '--fail', '--cacert', join(krater.directory, 'api-ca.pem'), '-H', `X-Auth-Token: ${api.token}`]
    await run('curl', [...curl, '-o', caFile, `${ca}/cacert`], { timeout: 20_000 })

    delete krater.environment.KRATER_API_TLS_INTERNAL_CA
    const settings = ['api.tls.internal_ca=false', `api.tls.reference=${container.href}`, `api.tls.ca_file=${caFile}`]
    t.equal((await krater.command('settings', ...settings)).status, 0)
    await krater.command('down')
    await krater.up()
    const serials = () => presented(krater, ({ issuer, serialNumber }) => `${issuer.CN} ${serialNumber}`)
    const isOfTheRoot = (serial: string | undefined) => serial?.startsWith('Krater Root CA ') === true
    await until('every API presents it', async () => Object.values(await serials()).every(isOfTheRoot))
    const before = await serials()
    const processes = runningProcesses(krater.directory).map(({ identity }) => identity.pid)
    const renewal = `${container.pathname.replace('containers', 'certificates')}/renew`
    const owner = await krater.api()
    const ask = () =>
      owner.request('key-manager', 'POST', renewal).then(
        () => true,
        (error: unknown) => {
          if (error instanceof ApiRefusal && error.status === 429) return false
          throw error
        },
      )
    await until('a minute has passed since the certificate was issued', ask)
    await until(
      'every API presents the renewed one',
      async () =>
        Object.entries(await serials()).every(([api, serial]) => serial !== before[api] && isOfTheRoot(serial)),
      90,
    )
    t.equal(new Set(Object.values(await serials())).size, 1)
    t.same(
      runningProcesses(krater.directory).map(({ identity }) => identity.pid),
      processes,
      'nothing was restarted',
    )
    t.match(await krater.openstack(['token', 'issue', '-f', 'json']), { project_id: /./ })
  },
)

t.test('plain HTTP on other addresses than loopback needs the operator’s word', async t => {
  t.setTimeout(1_100_000)
  const krater = await createKrater(t, {
    ...{ ...NOOP_DRIVERS, KRATER_LOAD_BALANCER_HOST: '0.0.0.0', KRATER_IDENTITY_HOST: '127.0.0.2' },
  })
  const refused = await krater.command('up', '--detach')
  t.equal(refused.status, 1)
  t.match(
    refused.stderr,
    /^load_balancer\.host is 0\.0\.0\.0: there, the load balancer API would send .* in clear\. Serve HTTPS: set api\.tls\.internal_ca to true .* set api\.allow_http to true/m,
  )
  const alone = await krater.command('api', '--only', 'load-balancer,network')
  t.match(alone, { status: 1, stderr: /load_balancer\.host is 0\.0\.0\.0/ })
  krater.environment.KRATER_API_ALLOW_HTTP = 'true'
  await krater.up()
  t.match(await krater.openstack(['loadbalancer', 'list', '-f', 'json']), [])
  delete krater.environment.KRATER_API_ALLOW_HTTP
  t.equal((await krater.command('settings', 'api.allow_http=', 'api.tls.internal_ca=true')).status, 0)
  await krater.command('down')
  await krater.up()
  t.match(await krater.openstack(['loadbalancer', 'list', '-f', 'json']), [])
})
