import { execFileSync } from 'node:child_process'
import { createPrivateKey, X509Certificate } from 'node:crypto'
import type { Test } from 'tap'
import { finished, hrefOf, idOf, MISSING, madeBy, type Scene, TIME } from './scene.js'

/** ca list and get; secret order create certificate. */
export async function authorities(t: Test, { member, administrator, file }: Scene): Promise<void> {
  const [root] = await member.list('ca list')
  const caId = idOf(root!['CA href'])
  const cacert = await fetch(`${administrator.urlOf('key-manager')}/v1/cas/${caId}/cacert`, {
    headers: { 'X-Auth-Token': administrator.token },
  })
  const authority = new X509Certificate(await cacert.text())

  await t.test('ca list and get', async t => {
    t.match(root, {
      'CA href': hrefOf('cas'),
      Name: /\w/,
      Description: /\w/,
      Created: TIME,
      Updated: TIME,
      Status: 'ACTIVE',
      'Plugin Name': 'internal',
      'Plugin CA ID': 'root',
      Expiration: TIME,
    })
    t.same(await member.show(`ca get ${root!['CA href']}`), root)
    t.same(await member.list(`ca list --name '${root!.Name}'`), [root])
    t.same(await member.list('ca list --name nowhere'), [])
    t.same(await member.list('ca list --limit 1 --offset 1'), [])
    t.match(await member.refused('ca get nonsense'), { status: 1, stderr: /CA incorrectly specified/ })
    t.match(await member.refused(`ca get ${MISSING}`), { status: 1, stderr: /^Not Found: /m })
  })

  /** The certificate that an order issued, and the other secrets of its container. */
  async function certificateOf(options: string) {
    const href = await madeBy(member, `secret order create certificate ${options}`)
    const done = await finished(member, href)
    const columns = ['Certificate', 'Intermediates', 'Private Key'].map(name => `-c '${name}'`).join(' ')
    const container = done['Container href']
    if (done.Status !== 'ACTIVE') throw new Error(`${options}: ${JSON.stringify(done)}`)
    const parts = await member.show(`secret container get ${container} -c Type -c Name ${columns}`)
    const { Payload } = await member.show(`secret get ${parts.Certificate} --payload`)
    return { done, container, parts, certificate: new X509Certificate(String(Payload)) }
  }

  const [key, csr] = [file('key.pem', ''), file('csr.pem', '')]
  const request = ['req', '-new', '-nodes', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1']
  execFileSync('openssl', [...request, '-keyout', key, '-out', csr, '-subj', '/CN=csr.example.org'], {
    stdio: 'ignore',
  })

  await t.test('a certificate for a new key', async t => {
    const { done, parts, certificate } = await certificateOf('--name fresh --subject-dn CN=fresh.example.org,O=Example')
    t.match(done, { Type: 'Certificate', 'Secret href': 'N/A', 'Container href': hrefOf('containers') })
    t.match(parts, { Type: 'certificate', Name: 'fresh', 'Private Key': hrefOf('secrets') })
    t.equal(certificate.subjectAltName, 'DNS:fresh.example.org')
    t.ok(certificate.verify(authority.publicKey), 'the CA signed it')
    t.match(await member.show(`secret get ${parts.Certificate}`), {
      Name: 'fresh-certificate',
      'Secret type': 'certificate',
    })
  })

  await t.test('a certificate for a CSR in a file, custom and simple-cmc', async t => {
    const byRequest = await certificateOf(`--name asked --request-type custom --request-file ${csr}`)
    t.equal(byRequest.certificate.subject, 'CN=csr.example.org')
    t.equal(byRequest.parts['Private Key'], null, 'the key stays with its owner')
    const encoded = file('csr.b64', execFileSync('base64', [csr]))
    const byCmc = await certificateOf(
      `--request-type simple-cmc --request-file ${encoded} --ca-id ${caId} --profile server`,
    )
    t.ok(byCmc.certificate.verify(authority.publicKey))
  })

  await t.test('a certificate for a stored key', async t => {
    const pair = await finished(
      member,
      await madeBy(member, 'secret order create asymmetric --name pair --algorithm rsa --bit-length 2048'),
    )
    const source = `--request-type stored-key --source-container-ref ${pair['Container href']}`
    const { parts, certificate } = await certificateOf(`--name stored ${source} --subject-dn CN=stored.example.org`)
    t.equal(certificate.subject, 'CN=stored.example.org')
    const { Payload } = await member.show(`secret get ${parts['Private Key']} --payload`)
    t.ok(certificate.checkPrivateKey(createPrivateKey(String(Payload))), 'the certificate is for the stored key')
  })

  await t.test('refused requests and their messages', async t => {
    const create = 'secret order create certificate'
    const refusals: [options: string, stderr: RegExp][] = [
      ['--request-type odd', /^Bad Request: .*"request_type"/m],
      ['--request-type full-cmc', /^Bad Request: .*full-cmc/m],
      ['--request-type simple-cmc', /^Bad Request: .*request_data/m],
      [`--request-type simple-cmc --request-file ${file('odd', 'nonsense')}`, /^Bad Request: .*request/m],
      [`--request-file ${key}`, /^Bad Request: .*private key/m],
      ['--request-type stored-key --subject-dn CN=a', /^Bad Request: .*container_ref/m],
      [
        `--request-type stored-key --subject-dn CN=a --source-container-ref ${MISSING}`,
        /^Bad Request: .*does not refer to a container/m,
      ],
      ['--subject-dn nonsense', /^Bad Request: .*type=value/m],
      [`--subject-dn CN=a --ca-id ${MISSING}`, /^Bad Request: /m],
      ['--subject-dn CN=a --profile server', /^Bad Request: .*ca_id/m],
    ]
    for (const [options, stderr] of refusals) {
      t.match(await member.refused(`${create} ${options}`), { status: 1, stderr }, options)
    }
    const done = await finished(member, await madeBy(member, `${create} --request-file ${file('odd', 'nonsense')}`))
    t.match(done, { Status: 'ERROR', 'Error code': '400', 'Error message': /request/ })
    t.match(await member.refused(`${create} --request-file /nowhere`), {
      status: 1,
      stderr: /Couldn't read request file/,
    })
    const listed = await member.list('secret order list')
    t.same([...new Set(listed.map(({ Type }) => Type))], ['Asymmetric'], 'certificate orders are not listed')
  })
}
