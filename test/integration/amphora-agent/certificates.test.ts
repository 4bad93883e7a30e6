import { randomUUID, X509Certificate } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import { digestOfPem } from '../../../x509/material/digest.js'
import type { MaterialKind } from '../../../x509/material/load.js'
import { makePair, makeRevocationList, type Pair } from '../../support/inputs/certificates.js'
import { createAmphora, until } from '../../support/worlds/amphora.js'
import { desire } from '../../support/worlds/amphora-desired.js'

/** HAProxy takes certificates over at runtime, whatever an agent before left behind. */

const LISTENER = '22222222-0000-4000-8000-000000000001'
const LIST = `tls/${LISTENER}.list`
const PATHS = {
  one: 'tls/33333333-0000-4000-8000-000000000001.pem',
  two: 'tls/33333333-0000-4000-8000-000000000002.pem',
  authority: `tls/${LISTENER}.client-ca.pem`,
  revocations: `tls/${LISTENER}.client-crl.pem`,
}
const STATE = '/run/krater'

const amphora = await createAmphora()
t.teardown(amphora.destroy)
const root = `/proc/${amphora.initPid}/root`
const textOf = ({ certificate, privateKey }: Pair) => certificate + privateKey
const clients = makePair({ subject: '/CN=clients' })
const client = makePair({ subject: '/CN=client', issuer: clients })
const clientFile = join(t.testdir({ 'client.pem': textOf(client) }), 'client.pem')
const lists = { allowing: makeRevocationList(clients), revoking: makeRevocationList(clients, client) }
/** Longer than a command for HAProxy can be. */
const manyAuthorities = Array.from({ length: 30 }, (_, at) => makePair({ subject: `/CN=${at}` }).certificate).join('')
const [first, second, third] = ['first', 'second', 'third'].map(name => makePair({ subject: `/CN=${name}` }))

const idOf = new Map(Object.values(PATHS).map(path => [path, randomUUID()]))
/** A file of the desired state, with its content in the agent's store of what it has read. */
function file(path: string, kind: MaterialKind, pem: string) {
  const [id, digest] = [idOf.get(path) ?? '', digestOfPem(pem)]
  mkdirSync(`${root}${STATE}/tls`, { recursive: true, mode: 0o700 })
  writeFileSync(`${root}${STATE}/tls/secrets-${id}-${kind.replace(' ', '-')}-${digest}.pem`, pem, { mode: 0o600 })
  return { path, kind, ref: `http://keys.test/v1/secrets/${id}`, digest }
}

type Site = { one: Pair; two?: Pair; authorities?: string; revocations?: string }
let generation = 0
function site({ one, two, authorities = clients.certificate, revocations = lists.allowing }: Site): Desired {
  const options = `ca-file ${PATHS.authority} crl-file ${PATHS.revocations} verify optional`
  const desired = desire({
    generation: ++generation,
    bind: `127.0.0.1:8443 ssl crt-list ${LIST} ${options}`,
    global: ['default-path config', 'tune.ssl.cachesize 0'],
    frontend: ['http-request return status 200'],
  })
  if (desired.haproxy === null) throw new Error('nothing to serve')
  const certificates = two === undefined ? [PATHS.one] : [PATHS.one, PATHS.two]
  desired.haproxy.tls = {
    files: [
      file(PATHS.one, 'certificate', textOf(one)),
      ...(two === undefined ? [] : [file(PATHS.two, 'certificate', textOf(two))]),
      file(PATHS.authority, 'authority', authorities),
      file(PATHS.revocations, 'revocation list', revocations),
    ],
    lists: [{ path: LIST, listenerId: LISTENER, certificates }],
  }
  return desired
}

const haproxy = (command: string) =>
  amphora.inside('bash', '-c', 'printf "%s\\n\\n" "$1" | socat -t5 - UNIX:/run/krater/haproxy.sock', 'bash', command)
const set = (kind: string, path: string, pem: string) => haproxy(`set ssl ${kind} ${path} <<\n${pem.trimEnd()}`)
const commit = (kind: string, path: string) => haproxy(`commit ssl ${kind} ${path}`)
/** The common name of the certificate that a client gets. */
const served = () => {
  const script = 'echo | timeout 5 openssl s_client -connect 127.0.0.1:8443 2>/dev/null | openssl x509 -noout -subject'
  return amphora
    .inside('bash', '-c', `${script} || true`)
    .replace(/^subject=CN = /, '')
    .trim()
}
const isAccepted = () => {
  const script = `printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 5 openssl s_client -quiet -connect 127.0.0.1:8443 -cert "$1"`
  return amphora.inside('bash', '-c', `${script} 2>/dev/null || true`, 'bash', clientFile).includes(' 200 ')
}
const nameOf = (pair: Pair) => new X509Certificate(pair.certificate).subject.replace('CN=', '')
const told = () => amphora.traffic.reports().flatMap(({ repairs }) => repairs.map(({ text }) => text))
const untilTold = (what: RegExp) => until(() => told().find(text => what.test(text)) ?? null, 60_000)
const applied = async (desired: Desired) => {
  const agent = await amphora.connect()
  const { transition } = await agent.apply(desired)
  agent.end()
  return transition
}

t.test('an agent that died before HAProxy read a new file: the next one has it read', async t => {
  await applied(site({ one: first! }))
  t.ok(isAccepted())
  const noted = amphora.readFile(`${STATE}/tls-loaded.json`)
  t.equal(await applied(site({ one: first!, revocations: lists.revoking })), 'runtime')
  t.notOk(isAccepted())

  set('crl-file', PATHS.revocations, lists.allowing)
  t.match(commit('crl-file', PATHS.revocations), 'Success!')
  t.ok(isAccepted(), 'HAProxy does not show what is in a revocation list, so the agent cannot compare it')
  writeFileSync(`${root}${STATE}/tls-loaded.json`, noted)
  await amphora.killAgent()
  await untilTold(/took over certificates that had changed before/)
  t.notOk(isAccepted())
})

t.test('an agent that died in the middle of an exchange does not hinder the next one', async t => {
  t.match(await applied(site({ one: first!, two: third! })), /runtime|reload/)
  t.match(set('cert', PATHS.one, textOf(second!)), 'Transaction created')
  t.match(set('ca-file', PATHS.authority, first!.certificate), 'ransaction created')
  t.match(set('crl-file', PATHS.revocations, lists.revoking), 'ransaction created')
  await amphora.killAgent()
  t.equal(await applied(site({ one: first!, two: second! })), 'runtime')
  t.equal(served(), nameOf(first!))
  t.ok(isAccepted())
})

t.test('a certificate that somebody added to a list is removed', async t => {
  t.match(await applied(site({ one: third! })), /runtime|reload/)
  haproxy(`new ssl cert ${PATHS.two}`)
  set('cert', PATHS.two, textOf(second!))
  commit('cert', PATHS.two)
  t.match(haproxy(`add ssl crt-list ${LIST} ${PATHS.two}`), 'Success!')
  await untilTold(/HAProxy served the certificate \S+0002\.pem, which is not the listener's/)
  t.notMatch(haproxy(`show ssl crt-list -n ${LIST}`), PATHS.two)
})

t.test('a file too long for a command is taken back by a reload', async t => {
  t.equal(await applied(site({ one: third!, authorities: clients.certificate + manyAuthorities })), 'reload')
  t.ok(isAccepted())
  set('ca-file', PATHS.authority, first!.certificate)
  t.match(commit('ca-file', PATHS.authority), 'Success!')
  t.notOk(isAccepted())
  await until(() => isAccepted() || null, 90_000)
  await untilTold(/HAProxy had another certificate in place of \S+client-ca\.pem/)
})
