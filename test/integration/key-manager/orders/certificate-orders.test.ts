import { createPrivateKey, randomUUID, X509Certificate } from 'node:crypto'
import t from 'tap'
import { createCaBackends } from '../../../../controller/key-manager/certificate-authorities/backends.js'
import type { CaBackend } from '../../../../controller/key-manager/certificate-authorities/ca-backend.js'
import { certificateOrderExecutor } from '../../../../controller/key-manager/certificate-authorities/certificate-order.js'
import { eraseProject } from '../../../../controller/key-manager/erase-project.js'
import { encodePem } from '../../../../x509/encoding/pem.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually } from '../../../support/eventually.js'
import { certificateOrderHelpers, csr, storedMeta } from '../../../support/inputs/certificate-order-helpers.js'
import { fileOf, keyOf, openssl } from '../../../support/inputs/x509.js'
import { EXECUTORS, orderHelpers, pathOf, startTestOrderWorker } from '../../../support/worlds/order-worker.js'

const manager = await startTestKeyManager()
const { ask, database } = manager
const backends = createCaBackends(manager)
for (const backend of backends) await backend.prepare()
const executor = certificateOrderExecutor(manager, backends)
const worker = await startTestOrderWorker(manager, { executors: { ...EXECUTORS, certificate: executor } })
t.teardown(async () => {
  await worker.stop()
  await manager.stop()
})
const { order, show, ended } = orderHelpers(manager)
const { resultOf, storedKey, waiting } = certificateOrderHelpers(manager)

const member = tokenOf('member')
const rootRow = await database('certificate_authority').first('id', 'certificate')
const rootFile = fileOf(rootRow.certificate)

async function subordinate(subject = 'CN=Below,O=Example', token = member, parent = rootRow.id): Promise<string> {
  const made = await ask('POST', '/v1/cas', { name: 'b', subject_dn: subject, parent_ca_ref: `x/${parent}` }, { token })
  return String(made.body.ca_ref).slice(-36)
}

t.test('an order creates a key and a certificate signed by the root', async t => {
  const id = await order('certificate', {
    name: 'web',
    algorithm: 'rsa',
    bit_length: 2048,
    subject_dn: 'CN=www.example.com,O=Example\\, Inc.',
  })
  const record = await ended(id)
  t.match(record, { status: 'ACTIVE', type: 'certificate', sub_status: 'cert_generated' })
  t.notOk('secret_ref' in record)
  const { container, parts } = await resultOf(record)
  t.match(container, { type: 'certificate', name: 'web' })
  t.same(Object.keys(parts), ['certificate', 'private_key'], 'no intermediates below the root')
  t.match(parts.certificate?.secret, { name: 'web-certificate', secret_type: 'certificate' })
  t.match(parts.private_key?.secret, {
    name: 'web-private_key',
    secret_type: 'private',
    algorithm: 'rsa',
    bit_length: 2048,
    content_types: { default: 'application/octet-stream' },
  })
  const certificate = new X509Certificate(parts.certificate?.payload ?? '')
  t.ok(certificate.checkPrivateKey(createPrivateKey(parts.private_key?.payload ?? '')))
  t.ok(certificate.checkHost('www.example.com'), 'the common name is also a subject alternative name')
  t.match(certificate.subject, 'O=Example\\, Inc.')
  t.match(openssl(['verify', '-x509_strict', '-CAfile', rootFile, fileOf(parts.certificate?.payload ?? '')]), {
    status: 0,
  })
  const [row] = await database('issued_certificate').where({ order_id: id })
  t.match(row, { ca_id: rootRow.id, subject_dn: 'CN=www.example.com,O=Example\\, Inc.', revoked_at: null })
  t.equal(BigInt(`0x${row.serial}`), BigInt(`0x${certificate.serialNumber}`))
  t.match(await database('audit_record').where({ action: 'certificate.issue' }), [
    { user_id: 'user-member', project_id: OWN, target_id: rootRow.id, detail: { order: id, serial: row.serial } },
  ])
})

t.test('an order chooses the curve, certifies an IP address and may have no name', async t => {
  const record = await ended(
    await order('certificate', { algorithm: 'EC', curve: 'secp384r1', subject_dn: 'CN=192.0.2.9' }),
  )
  const { container, parts } = await resultOf(record)
  t.match(container, { name: null })
  t.equal(parts.certificate?.secret.name, null)
  const certificate = new X509Certificate(parts.certificate?.payload ?? '')
  t.ok(certificate.checkIP('192.0.2.9'))
  t.equal(certificate.publicKey.asymmetricKeyDetails?.namedCurve, 'secp384r1')
  const bare = await resultOf(await ended(await order('certificate', { subject_dn: 'CN=Some Body' })))
  const plain = new X509Certificate(bare.parts.certificate?.payload ?? '')
  t.equal(plain.publicKey.asymmetricKeyDetails?.modulusLength, 2048)
  t.equal(plain.subjectAltName, undefined, 'a common name that is not a host adds no alternative name')
})

t.test('an order has more names besides the common name', async t => {
  const names = ['www.example.com', 'example.com', '*.w.example.com', '192.0.2.9', '2001:db8::9']
  const meta = { algorithm: 'ec', subject_dn: 'CN=www.example.com', subject_alternative_names: names }
  const { parts } = await resultOf(await ended(await order('certificate', meta)))
  const { subjectAltName } = new X509Certificate(parts.certificate?.payload ?? '')
  t.equal(
    subjectAltName,
    'DNS:www.example.com, DNS:example.com, DNS:*.w.example.com, IP Address:192.0.2.9, IP Address:2001:DB8:0:0:0:0:0:9',
  )
})

t.test('an order with a CSR yields only the certificate', async t => {
  for (const meta of [
    { request_data: csr('P-256') },
    { request_type: 'custom', request_data: csr('P-384') },
    { request_type: 'simple-cmc', request_data: csr('RSA 2048'), requestor_name: 'me', plugin_key: { a: 1 } },
  ]) {
    const id = await order('certificate', { name: 'mine', ...meta })
    const record = await ended(id)
    t.match(record, { status: 'ACTIVE', meta })
    const { container, parts } = await resultOf(record)
    t.match(container, { type: 'certificate' })
    t.same(Object.keys(parts), ['certificate'])
    const certificate = new X509Certificate(parts.certificate?.payload ?? '')
    t.ok(certificate.checkHost('www.example.com'))
    t.ok(certificate.checkEmail('web@example.com'))
    t.match(openssl(['verify', '-x509_strict', '-CAfile', rootFile, fileOf(parts.certificate?.payload ?? '')]), {
      status: 0,
    })
  }
})

t.test('with project_cas, each project gets one CA, barred from reserved names and other projects’ names', async t => {
  const { certificate_authority: defaults } = manager.config
  const settings = { ...defaults, project_cas: true, project_names: [{ project: FOREIGN, name: 'theirs.example' }] }
  const service = { ...manager, config: { ...manager.config, certificate_authority: settings } }
  const own = certificateOrderExecutor(service, createCaBackends(service))
  const signal = new AbortController().signal
  const ordered = async (subject_dn: string) => own(await waiting({ algorithm: 'ec', subject_dn }), signal)
  const outcomes = await Promise.all([ordered('CN=www.example.com'), ordered('CN=mail.example.com')])
  const files = outcomes.map(outcome => {
    if (outcome.kind !== 'made') throw new Error(JSON.stringify(outcome))
    const pem = (role: string) => fileOf(outcome.secrets.find(made => made.role === role)?.payload ?? '')
    return { certificate: pem('certificate'), intermediates: pem('intermediates') }
  })
  for (const { certificate, intermediates } of files) {
    const verified = openssl(['verify', '-x509_strict', '-CAfile', rootFile, '-untrusted', intermediates, certificate])
    t.match(verified, { status: 0 }, verified.text)
  }
  const made = await database('certificate_authority').where({ project_id: OWN, name: 'Project CA' })
  t.equal(made.length, 1, 'concurrent orders create one CA')
  t.match(openssl(['x509', '-noout', '-text'], made[0].certificate), {
    text: /Name Constraints: critical\s+Excluded:[\s\S]*DNS:localhost[\s\S]*DNS:theirs.example/,
  })
  t.match(await ordered('CN=www.theirs.example'), { kind: 'failed', statusCode: '400', reason: /another project/ })
  for (const subject of ['CN=localhost', 'CN=*.com', 'CN=127.0.0.1']) {
    t.match(await ordered(subject), { kind: 'failed', statusCode: '400', subStatus: 'cert_invalid_operation' }, subject)
  }
  await database('certificate_authority').where({ id: made[0].id }).delete()
})

t.test('reserved names end the order in ERROR', async t => {
  for (const subject_dn of ['CN=localhost', 'CN=*.com', 'CN=::1']) {
    const id = await order('certificate', { algorithm: 'ec', subject_dn })
    t.match(await ended(id), { status: 'ERROR', error_status_code: '400' }, subject_dn)
  }
})

t.test('a certificate of a subordinate CA comes with the chain a TLS server sends', async t => {
  const ca = await subordinate()
  const record = await ended(await order('certificate', { ca_id: ca, algorithm: 'ec', subject_dn: 'CN=a.example' }))
  const { parts } = await resultOf(record)
  t.same(Object.keys(parts), ['certificate', 'intermediates', 'private_key'])
  t.match(parts.intermediates?.secret, { secret_type: 'certificate' })
  const chain = parts.intermediates?.payload ?? ''
  t.equal(chain.match(/BEGIN CERTIFICATE/g)?.length, 1, 'without the root, which clients have')
  const leaf = parts.certificate?.payload ?? ''
  t.match(openssl(['verify', '-x509_strict', '-CAfile', rootFile, '-untrusted', fileOf(chain), fileOf(leaf)]), {
    status: 0,
  })
  await ask('POST', `/v1/cas/${ca}/set-preferred`)
  const preferred = await ended(await order('certificate', { algorithm: 'ec', subject_dn: 'CN=b.example' }))
  const issuer = new X509Certificate((await resultOf(preferred)).parts.certificate?.payload ?? '').issuer
  t.match(issuer, 'CN=Below', 'the preferred CA is the default')
  const refused = await ask('POST', '/v1/orders', {
    type: 'certificate',
    meta: { ca_id: rootRow.id, algorithm: 'ec', subject_dn: 'CN=c.example' },
  })
  t.equal(refused.status, 403, 'the CA is not on the project’s list')
  await database('project_certificate_authority').delete()
})

t.test('a stored key is certified in place, with or without a passphrase', async t => {
  for (const passphrase of [null, 'hush']) {
    const { ref, keyId } = await storedKey(passphrase)
    const id = await order('certificate', { name: 'stored', ...storedMeta(ref) })
    const record = await ended(id)
    t.match(record, { status: 'ACTIVE' })
    const { container, parts } = await resultOf(record)
    t.same(Object.keys(parts).sort(), [
      ...['certificate', 'private_key'],
      ...(passphrase === null ? [] : ['private_key_passphrase']),
    ])
    t.match(container.secret_refs, [{ name: 'certificate' }, { name: /private_key/ }])
    t.match(String(parts.private_key?.secret.secret_ref), keyId, 'the container refers to the key itself, not a copy')
    t.ok(new X509Certificate(parts.certificate?.payload ?? '').checkPrivateKey(keyOf('RSA 2048')))
    const reads = await database('audit_record').where({ action: 'secret.payload.read', target_id: keyId })
    t.ok(
      reads.some(({ detail }) => detail?.order === id),
      'reading the stored key is audited',
    )
  }
})

t.test('reading a stored key is audited even if the order then fails', async t => {
  const { ref, keyId } = await storedKey()
  const broken = await manager.store({ payload: 'no key', payload_content_type: 'text/plain' }, member)
  await database('container_secret').where({ secret_id: keyId }).update({ secret_id: broken })
  const id = await order('certificate', { name: 'stored', ...storedMeta(ref) })
  t.match(await ended(id), { status: 'ERROR', error_status_code: '400' })
  const reads = await database('audit_record').where({ action: 'secret.payload.read', target_id: broken })
  t.match(reads, [{ outcome: 'success', detail: { order: id } }])
})

t.test('another project’s key can be certified once the ACLs of key and container allow reading', async t => {
  const foreign = tokenOf('creator', FOREIGN)
  const { ref, keyId } = await storedKey(null, foreign)
  const post = () => ask('POST', '/v1/orders', { type: 'certificate', meta: storedMeta(ref) })
  t.equal((await post()).status, 403)
  const users = { read: { users: ['user-member'] } }
  await ask('PUT', `${pathOf(ref)}/acl`, users, { token: foreign })
  t.equal((await post()).status, 403, 'the container’s ACL alone is not enough')
  await ask('PUT', `/v1/secrets/${keyId}/acl`, users, { token: foreign })
  const record = await ended(await order('certificate', storedMeta(ref)))
  t.match(record, { status: 'ACTIVE' })
  const { parts } = await resultOf(record)
  t.notMatch(String(parts.private_key?.secret.secret_ref), keyId, 'the result holds a copy')
  t.ok(
    new X509Certificate(parts.certificate?.payload ?? '').checkPrivateKey(
      createPrivateKey(parts.private_key?.payload ?? ''),
    ),
  )
})

const signal = new AbortController().signal

t.test('the worker checks rights, container and CA again when it executes the order', async t => {
  const { ref, keyId } = await storedKey(null, tokenOf('creator'))
  const meta = storedMeta(ref)
  const asked = await waiting(meta)
  t.match(await executor(asked, signal), { kind: 'made' })
  const acl = { read: { users: [], 'project-access': false } }
  t.equal((await ask('PUT', `/v1/secrets/${keyId}/acl`, acl, { token: tokenOf('creator') })).status, 200)
  t.match(
    await executor(asked, signal),
    { kind: 'failed', statusCode: '403' },
    'the key was made private after the order',
  )
  t.match(
    await executor(await waiting(meta), signal),
    { kind: 'made' },
    'the API already checked a key that was private when ordered',
  )
  await database('container')
    .where({ id: ref.slice(-36) })
    .update({ deleted_at: new Date() })
  t.match(await executor(asked, signal), { kind: 'failed', statusCode: '400', subStatus: 'cert_data_invalid' })
  const gone = await subordinate('CN=Gone')
  const under = await waiting({ ca_id: gone, algorithm: 'ec', subject_dn: 'CN=x' })
  await database('certificate_authority').where({ id: gone }).delete()
  t.match(await executor(under, signal), { kind: 'failed', statusCode: '400', reason: /does not exist/ })
})

t.test('a revoked CA and the CAs below it certify nothing more', async t => {
  const [internal] = backends
  if (internal === undefined) throw new Error('There is no CA back end')
  const upper = await subordinate('CN=Upper')
  const lower = await subordinate('CN=Lower', member, upper)
  const ordered = async (ca_id: string) => executor(await waiting({ ca_id, request_data: csr('P-256') }), signal)
  t.match(await ordered(lower), { kind: 'made' })
  const { serial } = await database('certificate_authority').where({ id: upper }).first('serial')
  t.equal(await internal.revoke(rootRow.id, serial, 'cACompromise'), 'revoked')
  for (const id of [upper, lower]) t.match(await ordered(id), { kind: 'failed', statusCode: '400', reason: /revoked/ })
  t.match(await ask('POST', '/v1/cas', { name: 'x', subject_dn: 'CN=x', parent_ca_ref: `x/${lower}` }), {
    status: 400,
    body: { description: /revoked/ },
  })
  t.equal((await ask('GET', `/crl/${lower}.crl`)).status, 200, 'its CRL stays available')
})

t.test('deleting a CA revokes it in its parent’s CRL, so that its certificates become invalid', async t => {
  const crlOf = async (id: string) => (await ask('GET', `/crl/${id}.crl`, undefined, { token: null })).bytes
  const pemOfList = (crl: Buffer) => fileOf(encodePem('X509 CRL', crl))
  const rowOf = (id: string) => database('certificate_authority').where({ id }).first('certificate', 'serial')
  const ca = await subordinate('CN=Closing')
  const { certificate, serial } = await rowOf(ca)
  const { parts } = await resultOf(await ended(await order('certificate', { ca_id: ca, request_data: csr('P-256') })))
  const files = [fileOf(certificate), fileOf(parts.certificate?.payload ?? '')]
  const lastList = pemOfList(await crlOf(ca))
  const check = async () => {
    const lists = ['-CRLfile', lastList, '-CRLfile', pemOfList(await crlOf(rootRow.id))]
    return openssl(['verify', '-crl_check_all', '-CAfile', rootFile, ...lists, '-untrusted', ...files])
  }
  t.equal((await check()).status, 0)
  const ids = [await subordinate('CN=Ended'), await subordinate('CN=Erased', tokenOf('member', 'erased'))]
  const [ended_, erased] = await Promise.all(ids.map(rowOf))
  await database('issued_certificate')
    .where({ serial: ended_.serial })
    .update({ not_after: new Date(0) })
  const remove = (id = ''): Promise<{ status: number }> =>
    ask('DELETE', `/v1/cas/${id}`, undefined, { token: tokenOf('admin,member') })
  // The parent's CRL is being written.
  const making = await database.transaction()
  await making('certificate_authority').where({ id: rootRow.id }).increment('crl_number')
  const removing = remove(ca)
  try {
    await eventually('the deletion waits', async () => {
      const { rows } = await database.raw(
        `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      )
      return rows.length > 0
    })
  } finally {
    await making.commit()
  }
  t.equal((await removing).status, 204)
  t.equal((await remove(ids[0])).status, 204)
  t.match(await check(), { status: 2, text: /error 23 at 1 depth.*certificate revoked/ })
  t.match(await eraseProject(database, 'erased'), { certificateAuthorities: 1 })
  t.equal((await ask('GET', `/crl/${ca}.crl`)).status, 404, 'its key no longer exists')
  const list = openssl(['crl', '-inform', 'DER', '-noout', '-text'], await crlOf(rootRow.id)).text
  const at = (each: string) => list.indexOf(each.replace(/^0*/, '').toUpperCase())
  t.match(list.slice(at(serial)), /^.*\s+Revocation Date.*\s+.*\s+.*Reason Code:\s+Cessation Of Operation/)
  t.same([at(serial) > 0, at(erased.serial) > 0, at(ended_.serial) > 0], [true, true, false])
  const records = await database('audit_record').where({ target_id: rootRow.id }).orderBy('seq', 'desc').limit(2)
  const detail = { serial, reason: 'cessationOfOperation' }
  t.match(records[1], { action: 'certificate.revoke', user_id: 'user-admin,member', detail })
  t.match(records[0], { action: 'certificate.revoke', project_id: 'erased', detail: { serial: erased.serial } })
})

t.test('removing an ACL before the order is executed fails the order', async t => {
  const foreign = tokenOf('member', FOREIGN)
  const users = { read: { users: ['user-member'], 'project-access': false } }
  for (const kind of ['secret', 'container'] as const) {
    const { ref, keyId } = await storedKey(null, foreign)
    const acls = { secret: `/v1/secrets/${keyId}/acl`, container: `${pathOf(ref)}/acl` }
    for (const path of Object.values(acls)) await ask('PUT', path, users, { token: foreign })
    const asked = await waiting(storedMeta(ref))
    t.match(await executor(asked, signal), { kind: 'made' })
    t.equal((await ask('DELETE', acls[kind], undefined, { token: foreign })).status, 200)
    t.match(await executor(asked, signal), { kind: 'failed', statusCode: '403' }, `the ACL of the ${kind} is removed`)
  }
})

t.test('an unavailable or pending CA delays the order; a rejection fails it', async t => {
  const [internal] = backends
  if (internal === undefined) throw new Error('There is no CA back end')
  const asked = await waiting({ request_data: csr('P-256') })
  const under = (issue: CaBackend['issue']) =>
    certificateOrderExecutor(manager, [{ ...internal, issue }])(asked, signal)
  t.match(await under(async () => ({ kind: 'unavailable', message: 'away' })), {
    kind: 'later',
    seconds: 300,
    subStatus: 'cert_ca_unavail_for_issue',
  })
  t.match(await under(async () => ({ kind: 'pending', seconds: 5, message: 'soon' })), {
    kind: 'later',
    seconds: 5,
    subStatus: 'cert_request_pending',
  })
  t.match(await under(async () => ({ kind: 'rejected', reason: 'no' })), {
    kind: 'failed',
    statusCode: '400',
    subStatus: 'cert_invalid_operation',
  })
})

t.test('a request that no CA can use ends in ERROR', async t => {
  for (const meta of [
    {},
    { request_data: 'no base64!' },
    { request_data: Buffer.from('hello').toString('base64') },
    { request_type: 'custom', container_ref: 'x' },
  ]) {
    t.match(await ended(await order('certificate', meta)), {
      status: 'ERROR',
      error_status_code: '400',
      sub_status: 'cert_data_invalid',
      error_reason: /\w/,
    })
  }
})

t.test('POST refuses invalid certificate orders', async t => {
  const generic = await ask('POST', '/v1/containers', { type: 'generic', secret_refs: [] })
  const theirs = await subordinate('CN=Theirs', tokenOf('member', FOREIGN))
  const { ref } = await storedKey()
  const form = { algorithm: 'rsa', subject_dn: 'CN=x' }
  const unknown = '11111111-1111-4111-8111-111111111111'
  const tampered = Buffer.from(Buffer.from(csr('P-256'), 'base64').toString().replace(/A/, 'B')).toString('base64')
  const keyAndRequest =
    keyOf('P-256').export({ format: 'pem', type: 'pkcs8' }) + Buffer.from(csr('P-256'), 'base64').toString()
  const cases: [name: string, meta: unknown, status?: number][] = [
    ['full-cmc', { request_type: 'full-cmc', request_data: csr('P-256') }],
    ['an unknown type', { request_type: 'magic' }],
    ['extensions', { ...form, extensions: 'none' }],
    ['a payload', { ...form, payload: 'x' }],
    ['a passphrase', { ...form, passphrase: 'hush' }],
    ['a passphrase in the Python client’s spelling', { ...form, pass_phrase: 'hush' }],
    ['a request with its private key', { request_data: Buffer.from(keyAndRequest).toString('base64') }],
    ['the same without base64', { request_data: keyAndRequest }],
    ['no subject', { algorithm: 'rsa' }],
    ['a subject that is not a DN', { ...form, subject_dn: 'hello' }],
    ['an unsupported algorithm', { ...form, algorithm: 'dsa' }],
    ['a short key', { ...form, bit_length: 1024 }],
    ['an unsupported curve', { ...form, algorithm: 'ec', curve: 'secp256k1' }],
    ['a curve that does not match bit_length', { ...form, algorithm: 'ec', curve: 'secp384r1', bit_length: 256 }],
    ['a profile without a CA', { ...form, profile: 'server' }],
    ['an unknown CA', { ...form, ca_id: unknown }],
    ['a CA that is not an id', { ...form, ca_id: 'root' }],
    ['a CA of another project', { ...form, ca_id: theirs }, 403],
    ['a stored key without a container', { request_type: 'stored-key', subject_dn: 'CN=x' }],
    ['a stored key without a subject', { request_type: 'stored-key', container_ref: ref }],
    ['a stored key in a container that is not a reference', storedMeta('hello')],
    ['a stored key in an unknown container', storedMeta(`x/${unknown}`)],
    ['a stored key in a generic container', storedMeta(String(generic.body.container_ref))],
    ['simple-cmc without a request', { request_type: 'simple-cmc' }],
    ['simple-cmc that is not base64', { request_type: 'simple-cmc', request_data: '???' }],
    ['simple-cmc that is not a request', { request_type: 'simple-cmc', request_data: 'aGVsbG8=' }],
    ['simple-cmc with a tampered request', { request_type: 'simple-cmc', request_data: tampered }],
    ['a name that is too long', { ...form, name: 'n'.repeat(256) }],
    ['a request that is not a string', { request_data: 1 }],
    ['alternative names beside a request', { request_data: csr('P-256'), subject_alternative_names: ['a.example'] }],
  ]
  for (const [name, meta, status = 400] of cases) {
    const reply = await ask('POST', '/v1/orders', { type: 'certificate', meta })
    t.equal(reply.status, status, `${name}: ${reply.text}`)
    t.ok(reply.body.description, name)
  }
  const closed = await ask(
    'POST',
    '/v1/orders',
    { type: 'certificate', meta: storedMeta(ref) },
    { token: tokenOf('member', FOREIGN) },
  )
  t.equal(closed.status, 403, 'a container of another project is refused')
})

t.test('lists show certificate orders only when filtered by type', async t => {
  const ids = async (query: string) => (await ask('GET', `/v1/orders${query}`)).body.total
  t.equal(await ids(''), 0)
  t.ok(Number(await ids('?type=certificate')) > 5)
  t.match(await show(await order('certificate', { request_data: csr('P-256') })), { type: 'certificate' })
})

t.test('deleting a CA while it signs fails the order and stores nothing', async t => {
  const ca = await subordinate('CN=Fleeting')
  const outcome = await executor(await waiting({ ca_id: ca, request_data: csr('P-256') }), signal)
  await database('certificate_authority').where({ id: ca }).delete()
  if (outcome.kind !== 'made') throw new Error(outcome.kind)
  await t.rejects(database.transaction(async trx => outcome.alsoStore?.(trx, randomUUID())))
})
