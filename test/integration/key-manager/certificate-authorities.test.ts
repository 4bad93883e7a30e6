import { X509Certificate } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { listCertificates } from '../../../controller/cli/commands/key-manager/ca/certificates.js'
import { listAuthorities } from '../../../controller/cli/commands/key-manager/ca/list.js'
import { revokeIssued } from '../../../controller/cli/commands/key-manager/ca/revoke.js'
import { openInstance } from '../../../controller/cli/wiring/instance.js'
import { openCaBackends } from '../../../controller/cli/wiring/key-manager/ca-backends.js'
import { openKeyring } from '../../../controller/cli/wiring/key-manager/keyring.js'
import { createCaBackends } from '../../../controller/key-manager/certificate-authorities/backends.js'
import { eraseProject } from '../../../controller/key-manager/erase-project.js'
import { FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'
import type { JsonValue } from '../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'
import { createTestDatabase } from '../../support/database/database.js'
import { fileOf, openssl } from '../../support/inputs/x509.js'

const manager = await startTestKeyManager({ public_url: 'http://keys.test:9311/', quota: { cas: 20 } })
t.teardown(manager.stop)
const { database } = manager
const [backend] = createCaBackends(manager)
if (backend === undefined) throw new Error('There is no CA back end')
await Promise.all([backend.prepare(), backend.prepare(), backend.prepare()])

// Roles as in Keystone's tokens, which list the implied roles too.
const member = tokenOf('member,reader')
const reader = tokenOf('reader')
const admin = tokenOf('admin,member,reader')
const foreign = tokenOf('member,reader', FOREIGN)

const ask: typeof manager.ask = (method, path, body, options) =>
  manager.ask(method, path, body, { token: member, ...options })

const idOf = (reference: JsonValue | undefined): string => String(reference).slice(-36)
const root: string = (await database('certificate_authority').whereNull('project_id').first('id')).id

async function makeSubordinate(body: Record<string, unknown> = {}, token = member): Promise<string> {
  const made = await ask(
    'POST',
    '/v1/cas',
    { name: 'Ours', subject_dn: 'CN=Ours,O=Example', parent_ca_ref: `http://keys.test:9311/v1/cas/${root}`, ...body },
    { token },
  )
  if (made.status !== 201) throw new Error(`${made.status} ${made.text}`)
  return idOf(made.body.ca_ref)
}

/** Each test begins with the root as the only CA, and without project CAs or a global preferred one. */
t.beforeEach(async () => {
  await database('project_certificate_authority').delete()
  await database('certificate_authority').update({ global_preferred: false })
  await database('certificate_authority').whereNotNull('project_id').delete()
})

const metaOf = (meta: JsonValue | undefined): Record<string, string> =>
  Object.assign({}, ...(Array.isArray(meta) ? meta : []))

t.test('concurrent starts create the root CA once', async t => {
  const rows = await database('certificate_authority').whereNull('parent_id').select('id', 'sealed_key')
  t.equal(rows.length, 1)
  await backend.prepare()
  t.equal((await database('certificate_authority').whereNull('parent_id')).length, 1)
  t.match(await database('audit_record').where({ action: 'ca.create', target_id: root }), [
    { outcome: 'success', detail: { subject_dn: 'CN=Krater Root CA,O=Krater' } },
  ])
  t.notMatch(rows[0].sealed_key.toString('latin1'), 'PRIVATE')
})

t.test('a CA record shows its validity, subject, certificate and parent', async t => {
  const shown = await ask('GET', `/v1/cas/${root}`, undefined, { token: reader })
  t.equal(shown.status, 200)
  t.match(shown.body, {
    ca_id: root,
    status: 'ACTIVE',
    plugin_name: 'internal',
    plugin_ca_id: 'root',
    preferred: false,
    created: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/,
    updated: /^\d{4}-/,
    expiration: /^\d{4}-/,
  })
  t.ok(Array.isArray(shown.body.meta))
  t.ok(Array.isArray(shown.body.meta) && shown.body.meta.every(pair => Object.keys(Object(pair)).length === 1))
  const meta = metaOf(shown.body.meta)
  t.same(Object.keys(meta), ['name', 'description', 'subject_dn', 'ca_signing_certificate', 'intermediates'])
  t.equal(meta.subject_dn, 'CN=Krater Root CA,O=Krater')
  const certificate = new X509Certificate(String(meta.ca_signing_certificate))
  t.ok(certificate.ca)
  t.ok(certificate.verify(certificate.publicKey))
  const years = (new Date(certificate.validTo).getTime() - Date.now()) / 86_400_000 / 365
  t.ok(years > 9.9 && years < 10.1)
  t.match(openssl(['pkcs7', '-print_certs', '-noout'], meta.intermediates), { text: /CN = Krater Root CA/ })
  t.notMatch(shown.text, 'PRIVATE')
  const id = await makeSubordinate({ description: 'of the web team' })
  const below = metaOf((await ask('GET', `/v1/cas/${id}`)).body.meta)
  t.match(below, {
    name: 'Ours',
    description: 'of the web team',
    subject_dn: 'CN=Ours,O=Example',
    parent_ca_ref: `http://keys.test:9311/v1/cas/${root}`,
  })
})

t.test('a CA serves its certificate and chain in the type that the client accepts', async t => {
  const id = await makeSubordinate()
  const deeper = await makeSubordinate({
    parent_ca_ref: `http://keys.test:9311/v1/cas/${id}/`,
    subject_dn: 'CN=Deeper',
  })
  const certificate = await ask('GET', `/v1/cas/${deeper}/cacert`, undefined, { token: reader })
  t.equal(certificate.status, 200)
  t.equal(certificate.headers.get('content-type'), 'application/x-pem-file')
  t.match(new X509Certificate(certificate.bytes).subject, 'CN=Deeper')
  const read = (accept?: string) =>
    ask('GET', `/v1/cas/${deeper}/intermediates`, undefined, {
      headers: accept === undefined ? {} : { Accept: accept },
    })
  for (const [accept, type] of [
    [undefined, 'application/x-pem-file'],
    ['*/*', 'application/x-pem-file'],
    ['application/x-pem-file', 'application/x-pem-file'],
    ['text/plain', 'text/plain'],
    ['application/pkcs7-mime', 'application/pkcs7-mime'],
    ['application/json', 'application/pkcs7-mime'],
  ] as const) {
    t.equal((await read(accept)).headers.get('content-type'), type, String(accept))
  }
  const pem = (await read()).text
  t.same(
    pem.split(/(?=-----BEGIN)/).map(each => new X509Certificate(each).subject.split('\n').at(-1)),
    ['CN=Deeper', 'CN=Ours', 'CN=Krater Root CA'],
    'leaf first, root last',
  )
  const listed = openssl(['pkcs7', '-print_certs', '-noout'], (await read('application/pkcs7-mime')).bytes).text
  t.match(listed, /CN = Deeper[\s\S]*CN = Ours[\s\S]*CN = Krater Root CA/)
  const rootPem = (await ask('GET', `/v1/cas/${root}/cacert`)).text
  const verified = openssl([
    'verify',
    '-x509_strict',
    '-CAfile',
    fileOf(rootPem),
    '-untrusted',
    fileOf(pem),
    fileOf(pem),
  ])
  t.match(verified, { status: 0 }, verified.text)
  t.match(new X509Certificate(certificate.bytes).toString(), 'BEGIN')
  t.match(openssl(['x509', '-noout', '-text'], certificate.bytes).text, `URI:http://keys.test:9311/crl/${id}.crl`)
})

t.test('a caller lists the root CA and those of its own project; an administrator lists all', async t => {
  const own = await makeSubordinate()
  const other = await makeSubordinate({ subject_dn: 'CN=Theirs' }, foreign)
  const list = async (path: string, token = reader) =>
    ((await ask('GET', path, undefined, { token })).body.cas as JsonValue[]).map(idOf)
  t.same(await list('/v1/cas'), [root, own])
  t.same(await list('/v1/cas', foreign), [root, other])
  t.same(await list('/v1/cas/all', admin), [root, own, other])
  t.equal((await ask('GET', '/v1/cas/all', undefined, { token: member })).status, 403)
  for (const path of ['', '/cacert', '/intermediates', '/crl']) {
    t.equal((await ask('GET', `/v1/cas/${other}${path}`)).status, 403, path)
  }
  for (const token of [admin, tokenOf('key-manager:service-admin')])
    for (const path of ['', '/cacert', '/intermediates', '/crl', '/projects'])
      t.equal((await ask('GET', `/v1/cas/${other}${path}`, undefined, { token })).status, 200, `${token} ${path}`)
  t.equal((await ask('DELETE', `/v1/cas/${other}`, undefined, { token: admin })).status, 403)
  t.equal((await ask('DELETE', `/v1/cas/${own}`)).status, 403, 'only administrators delete CAs')
  await ask('POST', `/v1/cas/${own}/add-to-project`, undefined, { token: admin })
  t.same(await list('/v1/cas'), [own], 'a project with a list of CAs sees only those')
  t.same(await list('/v1/cas', foreign), [root, other])
  const page = await ask('GET', '/v1/cas/all?limit=1&offset=1&plugin_name=int%25', undefined, { token: admin })
  t.match(page.body, {
    cas: [`http://keys.test:9311/v1/cas/${own}`],
    total: 3,
    next: 'http://keys.test:9311/v1/cas/all?limit=1&offset=2&plugin_name=int%25',
    previous: 'http://keys.test:9311/v1/cas/all?limit=1&offset=0&plugin_name=int%25',
  })
  t.same(await list('/v1/cas/all?plugin_ca_id=root', admin), [root])
  t.same(await list('/v1/cas/all?plugin_name=%5C', admin), [])
  t.equal((await ask('GET', '/v1/cas?plugin_name=%00')).status, 400)
  await database('certificate_authority')
    .where({ id: own })
    .update({ expiration: new Date(0) })
  t.same(await list('/v1/cas/all', admin), [root, other], 'an expired CA is hidden')
  t.equal((await ask('GET', `/v1/cas/${own}`)).status, 404)
})

t.test('a project chooses its CAs and prefers one of them', async t => {
  const preferred = async (token = member) => {
    const { status, body } = await ask('GET', '/v1/cas/preferred', undefined, { token })
    return status === 200 ? idOf(body.ca_ref) : status
  }
  const post = async (id: string, action: string, token = admin) =>
    (await ask('POST', `/v1/cas/${id}/${action}`, undefined, { token })).status
  const own = await makeSubordinate()
  t.equal(await preferred(), 404)
  t.equal(await post(root, 'add-to-project'), 204)
  t.equal(await preferred(), root, 'the first CA added becomes the preferred one')
  t.equal(await post(root, 'add-to-project'), 204, 'a CA can be added twice')
  t.equal(await post(own, 'set-preferred'), 400, 'the CA is not on the project’s list')
  t.equal(await post(own, 'add-to-project'), 204)
  t.equal(await preferred(), root)
  t.equal(await post(own, 'set-preferred'), 204)
  t.equal(await preferred(), own)
  t.match((await ask('GET', `/v1/cas/${own}`)).body, { preferred: true })
  t.match((await ask('GET', `/v1/cas/${root}`)).body, { preferred: false })
  t.equal(await preferred(foreign), 404)
  t.equal(await post(own, 'remove-from-project'), 409)
  t.equal((await ask('DELETE', `/v1/cas/${own}`, undefined, { token: admin })).status, 409)
  t.same((await ask('GET', `/v1/cas/${own}/projects`, undefined, { token: admin })).body, { projects: [OWN] })
  t.equal((await ask('GET', `/v1/cas/${own}/projects`)).status, 403)
  t.equal(await post(root, 'remove-from-project'), 204)
  t.equal(await post(root, 'remove-from-project'), 404)
  t.equal(await post(own, 'remove-from-project'), 204, 'the last CA can be removed')
  t.equal(await preferred(), 404)
  t.equal(await post(own, 'set-preferred'), 204, 'a project without a list may prefer any CA that it sees')
  t.equal(await preferred(), own)
  t.equal(await post(own, 'add-to-project', tokenOf('admin,member,reader', FOREIGN)), 403)
  t.equal(await post(own, 'add-to-project', member), 403)
  t.equal(await post(own, 'set-preferred', member), 204)
  t.equal(await post(own, 'set-preferred', reader), 403)
  t.equal((await ask('DELETE', `/v1/cas/${own}`, undefined, { token: admin })).status, 204)
  t.equal(await preferred(), 404)
})

t.test('the global preferred CA applies to projects that prefer none', async t => {
  const own = await makeSubordinate()
  const post = async (path: string, token = admin) => (await ask('POST', path, undefined, { token })).status
  t.equal((await ask('GET', '/v1/cas/global-preferred', undefined, { token: admin })).status, 404)
  t.equal((await ask('GET', '/v1/cas/global-preferred')).status, 403)
  t.equal(await post(`/v1/cas/${root}/set-global-preferred`, member), 403)
  t.equal(await post(`/v1/cas/${own}/set-global-preferred`), 400)
  t.equal(await post(`/v1/cas/${root}/set-global-preferred`), 204)
  t.equal(await post(`/v1/cas/${root}/set-global-preferred`), 204)
  const global = await ask('GET', '/v1/cas/global-preferred', undefined, { token: admin })
  t.same(global.body, { ca_ref: `http://keys.test:9311/v1/cas/${root}` })
  t.same((await ask('GET', '/v1/cas/preferred')).body, global.body)
  t.match((await ask('GET', `/v1/cas/${root}`)).body, { preferred: true })
  await ask('POST', `/v1/cas/${own}/set-preferred`)
  t.equal(idOf((await ask('GET', '/v1/cas/preferred')).body.ca_ref), own, 'the project’s preference wins')
  t.match((await ask('GET', `/v1/cas/${root}`)).body, { preferred: false })
  t.equal(await post('/v1/cas/unset-global-preferred'), 204)
  t.equal(await post('/v1/cas/unset-global-preferred'), 204)
  t.equal((await ask('GET', '/v1/cas/preferred', undefined, { token: foreign })).status, 404)
})

t.test('creating a CA refuses invalid bodies, other projects’ parents and chains that are too deep', async t => {
  const own = await makeSubordinate()
  const ref = `http://keys.test:9311/v1/cas/${root}`
  const good = { name: 'a', subject_dn: 'CN=a', parent_ca_ref: ref }
  const cases: [name: string, body: unknown, status: number, message?: RegExp][] = [
    ['nothing', {}, 400],
    ['no name', { ...good, name: '' }, 400],
    ['a name of spaces', { ...good, name: '  ' }, 400],
    ['no subject', { ...good, subject_dn: undefined }, 400],
    ['no parent', { ...good, parent_ca_ref: '' }, 400],
    ['an unknown attribute', { ...good, color: 'red' }, 400],
    ['a subject that is not a DN', { ...good, subject_dn: 'hello' }, 400, /type=value/],
    ['a DN with a NUL', { ...good, subject_dn: 'CN=a\0' }, 400],
    ['an unknown parent', { ...good, parent_ca_ref: `${ref.slice(0, -12)}000000000000` }, 400, /does not exist/],
    ['a parent that is not a reference', { ...good, parent_ca_ref: 'root' }, 400, /does not exist/],
    ['an ancestor’s subject', { ...good, subject_dn: 'CN=Krater Root CA,O=Krater' }, 400, /already that of a CA above/],
    ['a list', [good], 400],
  ]
  for (const [name, body, status, message] of cases) {
    const reply = await ask('POST', '/v1/cas', body)
    t.equal(reply.status, status, name)
    if (message !== undefined) t.match(reply.body.description, message, name)
  }
  const under = { ...good, parent_ca_ref: `http://keys.test:9311/v1/cas/${own}` }
  t.equal((await ask('POST', '/v1/cas', under, { token: foreign })).status, 403)
  t.equal((await ask('POST', '/v1/cas', good, { token: reader })).status, 403)
  let parent = own
  for (let depth = 2; depth <= 5; depth++) {
    parent = await makeSubordinate({
      subject_dn: `CN=${depth}`,
      parent_ca_ref: `http://keys.test:9311/v1/cas/${parent}`,
    })
  }
  const tooDeep = await ask('POST', '/v1/cas', { ...good, parent_ca_ref: `http://keys.test:9311/v1/cas/${parent}` })
  t.match(tooDeep, { status: 400, body: { description: /allows no CA below it/ } })
  const remove = async (id: string) => (await ask('DELETE', `/v1/cas/${id}`, undefined, { token: admin })).status
  t.equal(await remove(own), 409, 'a CA with subordinate CAs cannot be deleted')
  t.equal(await remove(parent), 204)
  t.equal(await remove(parent), 404)
  t.equal(await remove(root), 403)
  t.match(await database('audit_record').where({ action: 'ca.delete', target_id: parent }), [
    { outcome: 'success', user_id: 'user-admin,member,reader', project_id: OWN },
  ])
})

t.test('erasing a project removes its CAs', async t => {
  const own = await makeSubordinate()
  await makeSubordinate({ subject_dn: 'CN=Deeper', parent_ca_ref: `x/${own}` })
  await ask('POST', `/v1/cas/${own}/set-preferred`)
  t.match(await eraseProject(database, OWN), { certificateAuthorities: 2 })
  t.equal((await ask('GET', `/v1/cas/${own}`)).status, 404)
  t.match((await ask('GET', '/v1/cas')).body, { total: 1 })
})

t.test('eight concurrent requests under a quota of three create exactly three CAs', async t => {
  const token = tokenOf('member,reader', 'c'.repeat(32))
  await database('project_quota').insert({ project_id: 'c'.repeat(32), cas: 3 })
  const made = await Promise.all(
    Array.from({ length: 8 }, (_, at) =>
      ask(
        'POST',
        '/v1/cas',
        { name: 'a', subject_dn: `CN=${at}`, parent_ca_ref: `http://keys.test:9311/v1/cas/${root}` },
        { token },
      ),
    ),
  )
  t.same(made.map(({ status }) => status).sort(), [201, 201, 201, 403, 403, 403, 403, 403])
  t.equal((await database('certificate_authority').where({ project_id: 'c'.repeat(32) })).length, 3)
})

t.test('unknown CA paths are 404, wrong methods 405', async t => {
  for (const [method, path, status] of [
    ['GET', '/v1/cas/hello', 404],
    ['GET', `/v1/cas/${root}/color`, 404],
    ['GET', `/v1/cas/${root}/add-to-project`, 405],
    ['GET', `/v1/cas/${root}/set-global-preferred`, 405],
    ['GET', '/v1/cas/unset-global-preferred', 405],
    ['DELETE', '/v1/cas/unset-global-preferred', 405],
    ['POST', `/v1/cas/${root}`, 405],
    ['PUT', '/v1/cas', 405],
    ['POST', '/v1/cas/hello/add-to-project', 404],
    ['GET', '/crl/hello.crl', 404],
  ] as const) {
    const reply = await ask(method, path, method === 'GET' ? undefined : {}, { token: admin })
    t.equal(reply.status, status, `${method} ${path}`)
    t.equal(reply.body.code, status)
  }
})

t.test('revoking a certificate puts it on the CA’s CRL under a higher number', async t => {
  await database('issued_certificate').update({ revoked_at: null })
  await database('certificate_authority').update({ crl: null })
  const own = await makeSubordinate()
  const chain = (await ask('GET', `/v1/cas/${root}/intermediates`)).text
  const shown = async (id = root) => {
    const { bytes } = await ask('GET', `/crl/${id}.crl`, undefined, { token: null })
    return openssl(['crl', '-inform', 'DER', '-noout', '-text', '-CAfile', fileOf(chain)], bytes).text
  }
  const first = await shown()
  t.match(first, /No Revoked Certificates[\s\S]*verify OK/)
  t.equal(await shown(), first, 'the CRL is cached until something changes')
  const { serial } = await database('issued_certificate')
    .where({ ca_id: root, subject_dn: 'CN=Ours,O=Example' })
    .orderBy('issued_at', 'desc')
    .first()
  t.equal(await backend.revoke(root, serial, 'cACompromise'), 'revoked')
  t.equal(await backend.revoke(root, serial, 'superseded'), 'already revoked')
  t.equal(await backend.revoke(root, '0'.repeat(32), 'superseded'), 'unknown')
  const record = await database('audit_record').where({ action: 'certificate.revoke' }).orderBy('seq', 'desc').first()
  t.match(record, { target_id: root, detail: { serial, reason: 'cACompromise' } })
  const second = await shown()
  t.match(second.replaceAll(/^\s*Serial Number: 0*/gm, ''), serial.replace(/^0*/, '').toUpperCase())
  t.match(second, /CA Compromise/)
  const numberIn = (text: string) => Number(/CRL Number: \s+(\d+)/.exec(text)?.[1])
  t.ok(numberIn(second) > numberIn(first))
  const ofOwn = await ask('GET', `/v1/cas/${own}/crl`)
  t.equal(ofOwn.headers.get('content-type'), 'application/pkix-crl')
  const pem = await ask('GET', `/v1/cas/${root}/crl`, undefined, { headers: { Accept: 'application/x-pem-file' } })
  const subordinate = (await ask('GET', `/v1/cas/${own}/cacert`)).text
  const check = ['verify', '-crl_check', '-CAfile', fileOf(chain), '-CRLfile', fileOf(pem.text), fileOf(subordinate)]
  t.match(openssl(check), { status: 2, text: /certificate revoked/ })
  t.equal((await ask('GET', `/v1/cas/${root}/crl`, undefined, { token: null })).status, 401)
  const numbers = await database('certificate_authority').where({ id: root }).first('crl_number')
  await database('certificate_authority').where({ id: root }).update({ crl: null })
  const racing = await Promise.all(Array.from({ length: 6 }, () => shown()))
  t.equal(new Set(racing).size, 1, 'concurrent readers get the same CRL')
  const { crl_number: after } = await database('certificate_authority').where({ id: root }).first('crl_number')
  t.equal(after, numbers.crl_number + 1)
})

t.test('each kind of CA key signs a valid subordinate CA', async t => {
  for (const key of ['rsa-2048', 'ec-256', 'ec-521']) {
    const other = createCaBackends({
      ...manager,
      config: {
        ...manager.config,
        certificate_authority: { ...manager.config.certificate_authority, key: key as 'ec-256' },
      },
    })
    const subject = [[{ type: '2.5.4.3', value: key }]]
    const made = await other[0]?.createSubordinate?.({
      ...{ projectId: OWN, creatorId: 'someone', parentId: root, name: key, description: null, subject },
    })
    const rootPem = (await ask('GET', `/v1/cas/${root}/cacert`)).text
    t.match(
      openssl(['verify', '-x509_strict', '-CAfile', fileOf(rootPem), fileOf(made?.certificate ?? '')]),
      { status: 0 },
      key,
    )
  }
})

t.test('an operator lists CAs and their certificates, and revokes one, from the command line', async t => {
  const testDatabase = await createTestDatabase()
  const directory = mkdtempSync(join(tmpdir(), 'krater-ca-'))
  const masterKey = join(directory, 'master')
  writeFileSync(masterKey, `${'a1'.repeat(32)}\n`, { mode: 0o600 })
  const configure = (certificate_authority: Record<string, string>) => {
    const key_manager = { certificate_authority, crypto: { simple: { master_key_file: masterKey } } }
    const settings = { database: { key_manager: testDatabase.urlOf('key_manager') }, key_manager }
    writeFileSync(join(directory, 'krater.yaml'), JSON.stringify(settings), { mode: 0o600 })
    return openInstance(directory)
  }
  const rows = testDatabase.of('key_manager')
  const told = async (command: (write: (line: string) => void) => Promise<void>): Promise<string> => {
    const lines: string[] = []
    await command(line => lines.push(line)).catch(error => lines.push(String(error)))
    return lines.join('\n')
  }
  const prepared = async (instance: ReturnType<typeof configure>) => {
    const keyring = await openKeyring(instance, rows)
    return openCaBackends({ database: rows, keyring, config: instance.config.key_manager })
  }
  try {
    const wrong = prepared(configure({ root_subject_dn: 'C=Germany' }))
    await t.rejects(wrong, { message: /root_subject_dn: .* C has more than 2/ })
    await prepared(configure({ root_subject_dn: 'CN=Of the house,C=DE', key: 'rsa-2048' }))
    t.match(
      await told(write => listAuthorities(directory, write)),
      /\(all\) +0 .* Internal root CA +CN=Of the house,C=DE/,
    )
    const { id, certificate } = await rows('certificate_authority').first()
    t.match(openssl(['x509', '-noout', '-text'], certificate).text, 'Public-Key: (2048 bit)')
    const serial = '0a'.repeat(16)
    await rows('issued_certificate').insert({ ca_id: id, serial, subject_dn: 'CN=\u001b[2J', not_after: new Date() })
    t.match(await told(write => listCertificates(directory, id, write)), new RegExp(`${serial} .* -  +CN=.u.1b`))
    const revoke = (given: string, reason = 'superseded', ca = id) =>
      told(write => revokeIssued(directory, { ca, serial: given, reason }, write))
    t.match(await revoke(serial, 'boredom'), /must be one of unspecified, keyCompromise/)
    t.match(await revoke('hello'), /not a hexadecimal serial number/)
    t.match(await revoke('ff'), /has issued no certificate/)
    t.match(await revoke(serial, 'superseded', 'hello'), /no certificate authority hello/)
    t.match(await revoke(`A${':0A'.repeat(15)}`), /is revoked/)
    t.match(await revoke(serial), /was already revoked/)
    t.match(await told(write => listCertificates(directory, id, write)), /superseded 20\d\d-/)
  } finally {
    rmSync(directory, { recursive: true, force: true })
    await testDatabase.drop()
  }
})
