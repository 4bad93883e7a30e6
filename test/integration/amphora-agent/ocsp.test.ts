import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import { encodePem } from '../../../x509/encoding/pem.js'
import { digestOfPem } from '../../../x509/material/digest.js'
import { certificateWith, OCSP_SIGNING } from '../../support/inputs/ocsp.js'
import { type Authority, authority, keyOf } from '../../support/inputs/x509.js'
import { createAmphora, createNamespace, until } from '../../support/worlds/amphora.js'
import { desire } from '../../support/worlds/amphora-desired.js'

/** OpenSSL's responder on a tenant's network, HAProxy in an amphora, and OpenSSL's client. */

const LIST = '22222222-0000-4000-8000-000000000001'
const RESPONDER = '198.51.100.53'
const SERIALS = { first: '1001', second: '1002', revoked: '1003', local: '1004', named: '1005' } as const

const directory = mkdtempSync(join(tmpdir(), 'krater-ocsp-'))
const amphora = await createAmphora()
const tenant = createNamespace()
await tenant.ready
tenant.ip('link', 'add', 'p1', 'type', 'veth', 'peer', 'name', 'p0', 'netns', String(amphora.initPid))
amphora.inside('ip', 'address', 'add', '198.51.100.1/24', 'dev', 'p0')
amphora.inside('ip', 'link', 'set', 'p0', 'up')
tenant.ip('address', 'add', `${RESPONDER}/24`, 'dev', 'p1')
tenant.ip('link', 'set', 'p1', 'up')
const agent = await amphora.connect()
const responders: ChildProcess[] = []
t.teardown(async () => {
  for (const responder of responders) await ended(responder)
  agent.end()
  await amphora.destroy()
  await tenant.end()
  rmSync(directory, { recursive: true, force: true })
})

const fileOf = (name: string, content: string) => {
  writeFileSync(join(directory, name), content, { mode: 0o600 })
  return join(directory, name)
}
const pemOf = (key: { export: (options: { type: 'pkcs8'; format: 'pem' }) => string | Buffer }) =>
  key.export({ type: 'pkcs8', format: 'pem' }).toString()

const root = authority('CN=Root', keyOf('P-384'), 1, null)
const issuer = authority('CN=Issuer', keyOf('P-256'), 0, root)
/** Has the issuer's name and a key of its own. */
const stranger = authority('CN=Issuer', keyOf('P-521'), 0, null)

/** A certificate with its chain and key, in the agent's store of what it has read. */
function material(serial: string, url = `http://${RESPONDER}/status`) {
  const key = keyOf('P-256')
  const der = certificateWith(issuer, key, { serial: Buffer.from(serial, 'hex'), responders: [url] })
  const pem = encodePem('CERTIFICATE', der) + issuer.pem + pemOf(key)
  const digest = digestOfPem(pem)
  const id = randomUUID()
  const store = `/proc/${amphora.initPid}/root/run/krater/tls`
  mkdirSync(store, { recursive: true, mode: 0o700 })
  writeFileSync(`${store}/containers-${id}-certificate-${digest}.pem`, pem, { mode: 0o600 })
  return { path: 'tls/33333333-0000-4000-8000-000000000001.pem', ref: `http://keys.test/v1/containers/${id}`, digest }
}

let generation = 0
function site(file: ReturnType<typeof material>, frontend: string[] = []): Desired {
  const list = `tls/${LIST}.list`
  const desired = desire({
    generation: ++generation,
    bind: `127.0.0.1:8443 ssl crt-list ${list}`,
    global: ['default-path config'],
    frontend: ['http-request return status 200', ...frontend],
  })
  if (desired.haproxy === null) throw new Error('nothing to serve')
  desired.haproxy.tls = {
    files: [{ ...file, kind: 'certificate' }],
    lists: [{ path: list, listenerId: LIST, certificates: [file.path] }],
  }
  return desired
}

/** OpenSSL's responder, until it is ended. @param by whose responder it is */
async function respond(by: Authority): Promise<ChildProcess> {
  const key = keyOf('RSA 2048')
  const certificate = certificateWith(by, key, { name: 'CN=Responder', extensions: [OCSP_SIGNING] })
  const line = (status: string, serial: string) => `${status}\t${serial}\tunknown\t/CN=${serial}\n`
  const index = [SERIALS.first, SERIALS.second, SERIALS.named].map(serial => line('V\t351231235959Z\t', serial))
  const files = [
    ['-index', fileOf('index', [...index, line('R\t351231235959Z\t200101000000Z', SERIALS.revoked)].join(''))],
    ['-CA', fileOf('ca.pem', issuer.pem)],
    ['-rsigner', fileOf('responder.pem', encodePem('CERTIFICATE', certificate))],
    ['-rkey', fileOf('responder.key', pemOf(key))],
  ].flat()
  const child = spawn(
    'nsenter',
    ['-t', String(tenant.pid), '-n', 'openssl', 'ocsp', '-port', '80', ...files, '-nmin', '60'],
    { stdio: 'ignore' },
  )
  responders.push(child)
  await until(() => listening('80') || null)
  return child
}

const listening = (port: string) =>
  execFileSync('nsenter', ['-t', String(tenant.pid), '-n', 'ss', '-Hlnt', `sport = :${port}`], { encoding: 'utf8' }) !==
  ''

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = new Promise(resolve => child.once('exit', resolve))
  child.kill('SIGKILL')
  await gone
}

/** What a client gets with the certificate: `1001 good`; null without a response. */
function stapled(): string | null {
  const script =
    'echo | timeout 5 openssl s_client -connect 127.0.0.1:8443 -servername www.example.com -status 2>/dev/null'
  const text = amphora.inside('bash', '-c', `${script} || true`)
  const [, serial, status] = /Serial Number: (\w+)\s+Cert Status: (\w+)/.exec(text) ?? []
  return serial === undefined ? null : `${serial} ${status}`
}

const log = () => amphora.readFile('/run/krater/log/agent.log')
const untilStapled = (what: string) => until(() => stapled() === what || null, 40_000)
const untilLogged = (what: RegExp) => until(() => what.exec(log())?.[0] ?? null, 30_000)

const first = material(SERIALS.first)

t.test('a responder is asked with the rights of HAProxy’s account', async t => {
  const real = await respond(issuer)
  const rule = ['priority', '50', 'uidrange', haproxyRange(), 'to', `${RESPONDER}/32`, 'prohibit']
  amphora.inside('ip', 'rule', 'add', ...rule)
  await agent.apply(site(first))
  t.equal(stapled(), null, 'what is not there yet delays nothing')
  await untilLogged(/no OCSP response from http:\/\/198\.51\.100\.53\/status: the connection failed \(E\w+\)/)
  amphora.inside('ip', 'rule', 'delete', ...rule)
  await untilStapled('1001 good')
  await ended(real)
})

t.test('the responder away changes nothing', async t => {
  t.match(await agent.apply(site(first, ['http-response set-header x-new yes'])), {
    transition: 'reload',
  })
  t.equal(stapled(), '1001 good', 'after a reload')
})

t.test('a forged response is not stapled, and the right one is after a change at runtime', async t => {
  const forger = await respond(stranger)
  const result = await agent.apply(site(material(SERIALS.second), ['http-response set-header x-new yes']))
  t.match(result, { transition: 'runtime' })
  t.equal(stapled(), null, 'the certificate got the response of the one before')
  await untilLogged(/the OCSP response is not signed by the issuer/)
  t.equal(stapled(), null)
  await ended(forger)
  await respond(issuer)
  await untilStapled('1002 good')
  amphora.inside('pkill', '-KILL', 'haproxy')
  t.equal(await until(stapled, 20_000), '1002 good', 'after a start')

  await agent.apply(site(material(SERIALS.revoked), ['http-response set-header x-new yes']))
  await untilStapled('1003 revoked')
  t.match(log(), /status says that certificate 1003 is revoked/)
})

/** A DNS server: `local.test` has a loopback address, every other name the responder's. */
const NAME_SERVER = `
const socket = require('node:dgram').createSocket('udp4')
socket.on('message', (query, { port, address }) => {
  const end = query.indexOf(0, 12) + 5
  const question = query.subarray(12, end)
  const found = question.includes('local') ? '7f000001' : 'c6336435'
  const isIpv4 = query.readUInt16BE(end - 4) === 1
  const header = Buffer.from(isIpv4 ? '81800001000100000000' : '81800001000000000000', 'hex')
  const answer = Buffer.from(isIpv4 ? 'c00c00010001000000050004' + found : '', 'hex')
  socket.send(Buffer.concat([query.subarray(0, 2), header, question, answer]), port, address)
})
socket.bind(53, '${RESPONDER}')
`

t.test('names of responders are looked up on the tenant’s network', async t => {
  const file = fileOf('resolv.conf', `nameserver 127.0.0.1\nnameserver ${RESPONDER}\n`)
  amphora.inside('chmod', '755', directory)
  amphora.inside('chmod', '644', file)
  amphora.inside('mount', '--bind', file, '/etc/resolv.conf')
  const server = spawn('nsenter', ['-t', String(tenant.pid), '-n', process.execPath, '-e', NAME_SERVER])
  responders.push(server)
  await agent.apply(site(material(SERIALS.named, 'http://ocsp.test/'), ['http-response set-header x-new yes']))
  await untilStapled('1005 good')
  const local = material(SERIALS.local, 'http://local.test/')
  await agent.apply(site(local, ['http-response set-header x-new yes']))
  await untilLogged(/from http:\/\/local\.test\/: its address 127\.0\.0\.1 is never contacted/)
  t.equal(stapled(), null)
})

t.test('a responder that hangs or is on this machine gives nothing and delays nothing', async t => {
  const local = material(SERIALS.local, 'http://127.0.0.1:5514/')
  await agent.apply(site(local, ['http-response set-header x-new yes']))
  await untilLogged(/from http:\/\/127\.0\.0\.1:5514\/: its address 127\.0\.0\.1 is never contacted/)
  amphora.inside('ip', 'link', 'set', 'p0', 'down')
  const { milliseconds } = await agent.apply(site(first, ['http-response set-header x-new yes']))
  t.ok(milliseconds < 3000, `${milliseconds} ms`)
})

function haproxyRange(): string {
  const uid = execFileSync('id', ['-u', 'haproxy'], { encoding: 'utf8' }).trim()
  return `${uid}-${uid}`
}
