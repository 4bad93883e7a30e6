import { readFileSync } from 'node:fs'
import type { Test } from 'tap'
import { FAR, FAR_GIVEN, hrefOf, idOf, MISSING, madeBy, namesOf, type Scene, TIME } from './scene.js'

const BYTES = Buffer.from(Uint8Array.from({ length: 256 }, (_, at) => at))
const OCTETS = 'application/octet-stream'
const PEM = '-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n'

/** secret store, get, update, list and delete. */
export async function secrets(t: Test, { member, file }: Scene): Promise<void> {
  const store = (options: string) => madeBy(member, `secret store ${options}`)
  const payloadOf = async (href: string, options = '') =>
    (await member.show(`secret get ${href} --payload ${options}`)).Payload
  const bytesOf = async (href: string, type: string) => {
    const path = `${file('taken', '')}-${idOf(href)}`
    await member.done(`secret get ${href} --file ${path} --payload_content_type ${type}`)
    return readFileSync(path)
  }

  await t.test('a text with every option', async t => {
    const made = await member.show(
      `secret store --name text --payload 'grüne Äpfel' --payload-content-type text/plain --secret-type passphrase ` +
        `--algorithm rot13 --bit-length 128 --mode ctr --expiration ${FAR_GIVEN}`,
    )
    t.match(made, {
      'Secret href': hrefOf('secrets'),
      Name: 'text',
      'Secret type': 'passphrase',
      Expiration: FAR_GIVEN,
    })
    const href = String(made['Secret href'])
    const record = await member.show(`secret get ${href}`)
    t.match(record.Created, TIME)
    t.same(record, {
      'Secret href': href,
      Name: 'text',
      Created: record.Created,
      Status: 'ACTIVE',
      'Content types': { default: 'text/plain' },
      Algorithm: 'rot13',
      'Bit length': 128,
      'Secret type': 'passphrase',
      Mode: 'ctr',
      Expiration: FAR,
    })
    t.same(await member.list('secret list --name text'), [record], 'the list shows the same record')
    t.equal(await payloadOf(href), 'grüne Äpfel')
    t.equal(await payloadOf(idOf(href)), 'grüne Äpfel', 'by its id alone')
    t.same(await member.show(`secret get ${href} --decrypt`), { Payload: 'grüne Äpfel' })
    t.equal((await bytesOf(href, OCTETS)).toString(), 'grüne Äpfel', 'as bytes')
    await member.done(`secret delete ${href}`)
  })

  await t.test('a payload without a type is stored as bytes and readable as text', async t => {
    const href = await store('--name plain --payload hello')
    t.match(await member.show(`secret get ${href}`), {
      'Content types': { default: OCTETS },
      Algorithm: 'aes',
      'Bit length': 256,
      Mode: 'cbc',
      'Secret type': 'opaque',
      Expiration: null,
    })
    t.equal(await payloadOf(href), 'hello')
    t.match(await member.run(`secret get ${href} --payload --payload_content_type ${OCTETS}`), { stdout: /b'hello'/ })
    await member.done(`secret delete ${href}`)
  })

  await t.test('files', async t => {
    const bytes = await store(`--name bytes --file ${file('bytes', BYTES)}`)
    t.same(await bytesOf(bytes, OCTETS), BYTES, 'the bytes are unchanged')
    t.match(await member.refused(`secret get ${bytes} --payload`), { status: 1, stderr: /^Not Acceptable/m })
    const taken = file('there', 'kept')
    t.match(await member.refused(`secret get ${bytes} --file ${taken} --payload_content_type ${OCTETS}`), {
      status: 1,
      stderr: /file already exists/,
    })
    t.equal(readFileSync(taken, 'utf8'), 'kept')
    for (const type of ['application/pkcs8', 'application/pkix-cert']) {
      const pem = await store(`--file ${file('pem', PEM)} --payload-content-type ${type} --secret-type private`)
      t.equal((await bytesOf(pem, type)).toString(), PEM.trim(), type)
      t.match(await member.show(`secret get ${pem}`), { 'Content types': { default: type } })
      await member.done(`secret delete ${pem}`)
    }
    const encoded = await store(
      `--payload ${BYTES.toString('base64')} --payload-content-type ${OCTETS} --payload-content-encoding base64`,
    )
    t.same(await bytesOf(encoded, OCTETS), BYTES, 'base64 is decoded')
    for (const href of [bytes, encoded]) await member.done(`secret delete ${href}`)
  })

  await t.test('update adds the payload, once', async t => {
    const href = await store('--name late')
    t.match(await member.show(`secret get ${href}`), { 'Content types': null, Status: 'ACTIVE' })
    t.match(await member.refused(`secret get ${href} --payload`), { status: 1, stderr: /Not Found: .*no payload/ })
    await member.done(`secret update ${href} soon`)
    t.equal(await payloadOf(href), 'soon')
    t.match(await member.show(`secret get ${href}`), { 'Content types': { default: 'text/plain' } })
    // The client sends non-ASCII text in an encoding other than UTF-8.
    const second = await store('--name later')
    t.match(await member.refused(`secret update ${second} später`), { status: 1, stderr: /^Bad Request: .*UTF-8/m })
    await member.done(`secret delete ${second}`)
    t.match(await member.refused(`secret update ${href} again`), { status: 1, stderr: /^Conflict: /m })
    t.match(await member.refused(`secret update ${MISSING} x`), { status: 1, stderr: /^Not Found: /m })
    t.equal(await payloadOf(href), 'soon', 'the first payload stays')
    await member.done(`secret delete ${href}`)
  })

  await t.test('list', async t => {
    const types = ['symmetric', 'public', 'private', 'certificate', 'passphrase', 'opaque']
    for (const [at, type] of types.entries()) {
      const about = `--algorithm algorithm${at} --bit-length ${8 * (at + 1)} --mode mode${at}`
      await store(`--name ${type} --secret-type ${type} ${about} --payload x`)
    }
    const listed = async (options: string) => namesOf(await member.list(`secret list ${options}`))
    t.same(await listed(''), types, 'in order of creation')
    for (const [at, type] of types.entries()) t.same(await listed(`--secret-type ${type}`), [types[at]])
    t.same(await listed('--name public'), ['public'])
    t.same(await listed('--name p%'), ['public', 'private', 'passphrase'], 'a pattern')
    t.same(await listed('--algorithm algorithm2'), ['private'])
    t.same(await listed('--bit-length 16'), ['public'])
    t.same(await listed('--mode mode4 --bit-length 40'), ['passphrase'])
    t.same(await listed('--limit 2 --offset 3'), ['certificate', 'passphrase'])
    t.same(await listed('--offset 6'), [])
    t.same(await listed('--limit 0'), ['symmetric'])
    t.same(await listed('--name nowhere'), [])
    t.match(await member.run('secret list --name nowhere'), { status: 0, stdout: /^\s*$/ })
    for (const secret of await member.list('secret list')) await member.done(`secret delete ${secret['Secret href']}`)
    t.same(await listed(''), [])
  })

  await t.test('a secret without a name', async t => {
    const href = await store('--payload x')
    t.match(await member.list('secret list'), [{ 'Secret href': href, Name: null }])
    await member.done(`secret delete ${idOf(href)}`)
    t.match(await member.refused(`secret get ${href}`), {
      status: 1,
      stdout: '',
      stderr: /^Not Found: Secret not found/m,
    })
    t.match(await member.refused(`secret get ${href} --payload`), {
      status: 1,
      stderr: /^Not Found: Secret not found/m,
    })
    t.match(await member.refused(`secret delete ${href}`), { status: 1, stderr: /^Not Found: Secret not found/m })
  })

  await t.test('refused requests and their messages', async t => {
    const octets = `--payload-content-type ${OCTETS}`
    const refusals: [options: string, stderr: RegExp][] = [
      ['store --payload x --secret-type odd', /^Bad Request: .*"secret_type" must be one of/m],
      ['store --payload x --payload-content-type text/html', /^Bad Request: .*text\/html/m],
      ['store --payload x --payload-content-encoding base64', /^Bad Request: .*payload_content_type/m],
      [`store --payload x ${octets}`, /^Bad Request: .*base64/m],
      [`store --payload ? ${octets} --payload-content-encoding base64`, /^Bad Request: .*not valid base64/m],
      [`store --payload x ${octets} --payload-content-encoding gzip`, /^Bad Request: .*base64/m],
      ['store --payload-content-type text/plain', /^Bad Request: .*without a payload/m],
      ['store --payload x --bit-length 0', /^Bad Request: .*"bit_length"/m],
      ['store --payload x --expiration soon', /Unable to parse date/],
      ['store --payload x --expiration 2001-01-01T00:00:00', /^Bad Request: .*expiration/m],
      [`store --name ${'n'.repeat(256)}`, /^Bad Request: .*"name" must have at most 255 characters/m],
      [`store --file ${file('large', new Uint8Array(15_001))}`, /: The payload is longer than 20000 bytes/],
      [`store --file ${file('huge', new Uint8Array(30_000))}`, /25000 bytes|20000 bytes/],
      [`store --file ${file('empty', '')}`, /Cannot Be Empty String/],
      ['store --file /nowhere', /No such file/],
      ['get nonsense', /Secret incorrectly specified/],
      [`get http://127.0.0.1:1/v1/secrets/${MISSING}`, /^Not Found: Secret not found/m],
      ['delete nonsense', /Secret incorrectly specified/],
      [`delete ${MISSING}`, /^Not Found: Secret not found/m],
      ['update nonsense x', /Secret incorrectly specified/],
    ]
    for (const [options, stderr] of refusals) {
      t.match(await member.refused(`secret ${options}`), { status: 1, stderr }, options.slice(0, 80))
    }
    t.match(await member.refused('secret store --payload x --file y'), { status: 2, stderr: /not allowed with/ })
    t.same(await member.list('secret list'), [], 'no refused request stores anything')
  })
}
