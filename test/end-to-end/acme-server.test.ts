import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { authorityCertificateFile } from '../../controller/cli/api-tls/authority.js'
import { eventually } from '../support/eventually.js'
import { ownPorts } from '../support/ports.js'
import { type Krater, startKrater } from '../support/worlds/krater.js'
import { createTenantMachine, type TenantMachine } from '../support/worlds/tenant-machine.js'

const run = promisify(execFile)

type Program = { stdout: string; stderr: string; status: number }

/** Runs a program to its end. */
const finish = (command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Program> =>
  run(command, [...args], { env: { ...process.env, ...env }, timeout: 120_000 }).then(
    ({ stdout, stderr }) => ({ stdout, stderr, status: 0 }),
    (error: { code?: unknown; stdout?: string; stderr?: string }) => ({
      stdout: error.stdout ?? '',
      stderr: error.stderr ?? String(error),
      status: typeof error.code === 'number' ? error.code : -1,
    }),
  )

/** Starts a program that is killed at the end of the test. */
function keepRunning(t: Test, command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): ChildProcess {
  const child = spawn(command, [...args], { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  const ended = once(child, 'close')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  return child
}

/** Debian's DNS server for tests of ACME, with the records that a test adds. */
async function startDns(t: Test, [port, management]: readonly number[]) {
  keepRunning(t, 'pebble-challtestsrv', [
    ...['-dns01', `127.0.0.1:${port}`, '-management', `127.0.0.1:${management}`],
    ...['-http01', '', '-https01', '', '-tlsalpn01', '', '-defaultIPv4', '', '-defaultIPv6', ''],
  ])
  const url = `http://127.0.0.1:${management}`
  const post = async (path: string, body: object) => {
    const answer = await fetch(url + path, { method: 'POST', body: JSON.stringify(body) })
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status}`)
  }
  await eventually('the DNS server runs', () =>
    post('/clear-a', { host: 'x.' }).then(
      () => true,
      () => null,
    ),
  )
  return { url, name: (host: string, address: string) => post('/add-a', { host: `${host}.`, addresses: [address] }) }
}

/** Makes the key manager reachable in a machine, at the URL that it has outside. */
async function reachApi(
  t: Test,
  { namespace }: TenantMachine,
  { url, ca, socket }: { url: string; ca: string; socket: string },
): Promise<void> {
  const { port } = new URL(url)
  keepRunning(t, 'socat', [`UNIX-LISTEN:${socket},fork`, `TCP:127.0.0.1:${port}`])
  const listen = `TCP-LISTEN:${port},bind=127.0.0.1,fork,reuseaddr`
  keepRunning(t, 'ip', ['netns', 'exec', namespace, 'socat', listen, `UNIX-CONNECT:${socket}`])
  const ask = () => finish('ip', ['netns', 'exec', namespace, 'curl', '-sf', '--cacert', ca, `${url}/acme/directory`])
  await eventually('the machine reaches the API', async () => (await ask()).status === 0)
}

type Key = { keyId: string; hmacKey: string; directory: string }

async function createKey(krater: Krater, name: string): Promise<Key> {
  const { status, stdout, stderr } = await krater.command('certificates', 'acme-account', 'create', '--name', name)
  if (status !== 0) throw new Error(stderr)
  const word = (label: string) => new RegExp(`^${label} +(\\S+)$`, 'm').exec(stdout)?.[1] ?? ''
  return { keyId: word('key id'), hmacKey: word('HMAC key'), directory: word('directory') }
}

/** PEM of the root CA, as every user of the API reads it. */
async function rootOf(krater: Krater): Promise<string> {
  const api = await krater.api()
  const { cas } = (await api.request('key-manager', 'GET', '/v1/cas')) as { cas: string[] }
  return String(await api.request('key-manager', 'GET', `${new URL(cas[0] ?? '').pathname}/cacert`))
}

t.test('certbot and Caddy get certificates of the internal CA over a tenant’s network', async t => {
  t.setTimeout(1_100_000)
  const scratch = mkdtempSync(join(tmpdir(), 'krater-acme-'))
  t.teardown(() => rmSync(scratch, { recursive: true, force: true }))
  const [dnsPort = 0, management = 0] = await ownPorts(2)
  const dns = await startDns(t, [dnsPort, management])
  const krater = await startKrater(t, {
    KRATER_KEY_MANAGER_ACME_SERVER_RESOLVERS: `127.0.0.1:${dnsPort}`,
    KRATER_COMPUTE_DRIVER: 'noop',
    KRATER_API_TLS_INTERNAL_CA: 'true',
  })
  const machine = await createTenantMachine(t, krater, 'acme')
  const { legs } = await machine.standOn('web', ['192.168.221.0/24'])
  const address = legs[0]?.address ?? ''
  const apiCa = authorityCertificateFile(krater.directory)
  const apiUrl = `https://127.0.0.1:${krater.environment.KRATER_KEY_MANAGER_PORT}`
  await reachApi(t, machine, { url: apiUrl, ca: apiCa, socket: join(scratch, 'api') })
  const rootFile = join(scratch, 'root.pem')
  writeFileSync(rootFile, await rootOf(krater))
  const inside = ['netns', 'exec', machine.namespace]

  const trust = { REQUESTS_CA_BUNDLE: apiCa }
  const certbotDirectories = ['config', 'work', 'logs'].flatMap(kind => [
    `--${kind}-dir`,
    join(scratch, 'certbot', kind),
  ])
  const certbotWords = (directory: string) => ['--non-interactive', '--server', directory, ...certbotDirectories]
  const liveFile = (name: string, file: string) => join(scratch, 'certbot/config/live', name, file)
  let bound: Key | undefined

  await t.test('certbot: HTTP-01 from its own web server in the machine', async t => {
    await dns.name('www.shop.test', address)
    const key = await createKey(krater, 'certbot')
    bound = key
    const binding = ['--eab-kid', key.keyId, '--eab-hmac-key', key.hmacKey, '--agree-tos', '-m', 'ops@shop.test']
    const words = ['certonly', '--standalone', '-d', 'www.shop.test', ...binding, ...certbotWords(key.directory)]
    const made = await finish('ip', [...inside, 'certbot', ...words], trust)
    t.equal(made.status, 0, made.stdout + made.stderr)
    const chain = liveFile('www.shop.test', 'fullchain.pem')
    t.match(new X509Certificate(readFileSync(chain)).subjectAltName, 'DNS:www.shop.test')
    const verified = await finish('openssl', [
      'verify',
      '-CAfile',
      rootFile,
      '-verify_hostname',
      'www.shop.test',
      chain,
    ])
    t.equal(verified.status, 0, verified.stderr)
  })

  await t.test('certbot: renewal, with a new key, though the validator was just killed', async t => {
    krater.kill('acme-validator')
    const before = readFileSync(liveFile('www.shop.test', 'privkey.pem'), 'utf8')
    const serial = new X509Certificate(readFileSync(liveFile('www.shop.test', 'cert.pem'))).serialNumber
    const words = ['renew', '--force-renewal', '--no-random-sleep-on-renew', '--non-interactive', ...certbotDirectories]
    const renewed = await finish('ip', [...inside, 'certbot', ...words], trust)
    t.equal(renewed.status, 0, renewed.stdout + renewed.stderr)
    t.not(readFileSync(liveFile('www.shop.test', 'privkey.pem'), 'utf8'), before)
    t.not(new X509Certificate(readFileSync(liveFile('www.shop.test', 'cert.pem'))).serialNumber, serial)
  })

  await t.test('certbot: a wildcard by DNS-01, with a hook', async t => {
    const hook = join(scratch, 'hook')
    const record = `{"host":"_acme-challenge.$CERTBOT_DOMAIN.","value":"$CERTBOT_VALIDATION"}`
    writeFileSync(hook, `#!/bin/sh\nexec curl -sf ${dns.url}/set-txt -d "${record.replaceAll('"', '\\"')}"\n`, {
      mode: 0o755,
    })
    const manual = ['--manual', '--preferred-challenges', 'dns', '--manual-auth-hook', hook]
    const words = ['certonly', ...manual, '-d', '*.shop.test', ...certbotWords(bound?.directory ?? '')]
    const made = await finish('certbot', words, trust)
    t.equal(made.status, 0, made.stdout + made.stderr)
    t.ok(new X509Certificate(readFileSync(liveFile('shop.test', 'cert.pem'))).checkHost('any.shop.test'))
  })

  await t.test('certbot: revocation, on the CA’s list at once', async t => {
    const file = liveFile('shop.test', 'cert.pem')
    const { serialNumber } = new X509Certificate(readFileSync(file))
    const words = ['revoke', '--cert-path', file, '--no-delete-after-revoke', ...certbotWords(bound?.directory ?? '')]
    const revoked = await finish('certbot', words, trust)
    t.equal(revoked.status, 0, revoked.stdout + revoked.stderr)
    const { stdout: list } = await krater.command('key-manager', 'ca', 'list')
    const id = /[0-9a-f-]{36}/.exec(list)?.[0] ?? ''
    const crlFile = join(scratch, 'crl')
    await finish('curl', ['-sf', '--cacert', apiCa, '-o', crlFile, `${apiUrl}/crl/${id}.crl`])
    const { stdout } = await finish('openssl', ['crl', '-inform', 'DER', '-in', crlFile, '-noout', '-text'])
    t.match(stdout, new RegExp(`Serial Number: 0*${serialNumber}`))
  })

  await t.test('certbot: a name that resolves to this machine gets no certificate', async t => {
    await dns.name('evil.shop.test', '127.0.0.1')
    const words = ['certonly', '--standalone', '-d', 'evil.shop.test', ...certbotWords(bound?.directory ?? '')]
    const refused = await finish('ip', [...inside, 'certbot', ...words], trust)
    t.not(refused.status, 0)
    t.match(refused.stdout + refused.stderr, /127\.0\.0\.1, which validations never contact/)
  })

  for (const [type, disabled] of [
    ['HTTP-01', 'disable_tlsalpn_challenge'],
    ['TLS-ALPN-01', 'disable_http_challenge'],
  ] as const) {
    await t.test(`Caddy: ${type}, and the site answers over HTTPS`, async t => {
      const name = `${type.toLowerCase()}.shop.test`
      await dns.name(name, address)
      const { keyId, hmacKey, directory } = await createKey(krater, `Caddy ${type}`)
      const home = join(scratch, type)
      mkdirSync(home)
      writeFileSync(
        join(home, 'Caddyfile'),
        `{
  admin off
  skip_install_trust
  email ops@shop.test
}
${name} {
  tls {
    issuer acme {
      dir ${directory}
      trusted_roots ${apiCa}
      eab ${keyId} ${hmacKey}
      ${disabled}
    }
  }
  respond "hello from Caddy"
}
`,
      )
      const words = ['caddy', 'run', '--config', join(home, 'Caddyfile'), '--adapter', 'caddyfile']
      const caddy = keepRunning(t, 'ip', [...inside, ...words], {
        HOME: home,
        XDG_DATA_HOME: home,
        XDG_CONFIG_HOME: home,
      })
      let log = ''
      for (const stream of [caddy.stdout, caddy.stderr]) stream?.on('data', chunk => (log += chunk))
      const ask = () =>
        finish('ip', [
          ...inside,
          'curl',
          '-sS',
          '--cacert',
          rootFile,
          '--resolve',
          `${name}:443:${address}`,
          `https://${name}/`,
        ])
      await eventually('the site answers', async () => (await ask()).stdout === 'hello from Caddy', 60_000).catch(
        error => {
          throw new Error(`${error.message}\n${log}`)
        },
      )
      t.match(log, /certificate obtained successfully/)
    })
  }

  await t.test('krater certificates acme-account lists the keys, and revoking one ends its account', async t => {
    const listed = await krater.command('certificates', 'acme-account', 'list')
    t.match(listed.stdout, /active +1 +\S+ +certbot\n(.*\n)*.*active +1 +\S+ +Caddy TLS-ALPN-01/)
    t.notMatch(listed.stdout, bound?.hmacKey ?? '')
    const revoked = await krater.command('certificates', 'acme-account', 'revoke', bound?.keyId ?? '')
    t.match(revoked, { status: 0, stdout: /^Revoked \S+ and the accounts that it created/ })
    const words = ['renew', '--force-renewal', '--no-random-sleep-on-renew', '--non-interactive', ...certbotDirectories]
    const refused = await finish('ip', [...inside, 'certbot', ...words], trust)
    t.not(refused.status, 0)
    t.match(refused.stdout + refused.stderr, /The account is revoked/)
    t.match(await krater.command('certificates', 'acme-account', 'revoke', 'nothing'), {
      status: 1,
      stderr: /no key "nothing"/,
    })
  })

  await t.test('nothing of the validations stays on the network, and no HMAC key in a log', async t => {
    const api = await krater.api()
    const { ports } = (await api.request('network', 'GET', '/v2.0/ports?device_owner=krater:visitor')) as {
      ports: unknown[]
    }
    t.same(ports, [])
    for (const name of ['key-manager-api', 'key-manager-worker', 'acme-validator']) {
      t.notMatch(readFileSync(join(krater.directory, 'log', `${name}.log`), 'utf8'), bound?.hmacKey ?? '')
    }
  })
})
