import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { configurationSchema } from '../../controller/config/schema.js'
import { listenerTlsDefaults } from '../../controller/load-balancer/objects/listeners/tls-rules.js'
import { aListener, aPool, uuid } from '../golden/models.js'
import { aLocalMember, serveOptions } from '../support/clients/options-traffic.js'
import { certificateOf, keepMaterial, root, runProgram } from '../support/clients/tls-traffic.js'
import { fileOf } from '../support/inputs/x509.js'
import { startTellingMember } from '../support/services/telling-member.js'

/** What sslscan and testssl.sh find on a listener with the options that it has by default. */

const NAME = 'www.example.com'
const kept = keepMaterial()
const extensions = [
  ...['basicConstraints=CA:FALSE', 'extendedKeyUsage=serverAuth', 'crlDistributionPoints=URI:http://crl.example.com/'],
].flatMap(extension => ['-addext', extension])
const stored = (kind: 'rsa' | 'ec') =>
  kept.certificate(certificateOf([NAME], { kind, args: [...extensions, '-days', '90'] }))

const { tls_versions, tls_ciphers, alpn_protocols } = listenerTlsDefaults(
  configurationSchema.parse({}).load_balancer,
  'TERMINATED_HTTPS',
)
const member = await startTellingMember(t, 'member')
const balancer = await serveOptions(t, {
  material: kept.material,
  pools: [aPool(1, { members: [aLocalMember(1, member.port)] })],
  listeners: [
    aListener(1, {
      protocol: 'TERMINATED_HTTPS',
      defaultPoolId: uuid(3, 1),
      defaultTlsContainerRef: stored('ec'),
      sniContainerRefs: [stored('rsa')],
      tlsVersions: tls_versions,
      tlsCiphers: tls_ciphers,
      alpnProtocols: alpn_protocols,
    }),
  ],
})
const port = balancer.port(1)

t.test('sslscan finds only strong protocols and ciphers', async t => {
  const { output } = await runProgram('sslscan', ['--no-colour', `--sni-name=${NAME}`, `127.0.0.1:${port}`], 200)
  t.same(
    [...output.matchAll(/^(\S+) +enabled$/gm)].map(([, version]) => version),
    ['TLSv1.2', 'TLSv1.3'],
  )
  const ciphers = [...output.matchAll(/^(?:Preferred|Accepted) +\S+ +(\d+) bits +(\S+)/gm)]
  t.ok(ciphers.length >= 6, output)
  for (const [, bits, cipher = ''] of ciphers) {
    t.ok(Number(bits) >= 128 && /^(TLS_|ECDHE-).*(GCM|CHACHA20)/.test(cipher), cipher)
  }
  t.match(output, 'Session renegotiation not supported')
  t.notMatch(output, /^\S+ vulnerable to heartbleed/m)
})

/**
 * What is not the listener's; what Mozilla's profile asks for, as every cipher is as good as the other; and a check
 * for which testssl.sh often closes its connection before the ticket of TLS 1.3 arrives.
 */
const EXPECTED = new Set(['cipher_order', 'security_headers', 'engine_problem', 'sessionresumption_ticket'])

t.test('testssl.sh has no finding above low', async t => {
  const report = join(t.testdir({}), 'report.json')
  const sections = ['--protocols', '--std', '--pfs', '--server-defaults', '--headers', '--vulnerable']
  const offline = ['--ip', '127.0.0.1', '--nodns', 'none', '--add-ca', fileOf(root.certificate)]
  const words = ['--quiet', '--color', '0', '--warnings', 'off', ...offline, ...sections, '--jsonfile', report]
  await runProgram('testssl', [...words, `https://${NAME}:${port}`], 600)
  const findings = JSON.parse(readFileSync(report, 'utf8')) as { id: string; severity: string; finding: string }[]
  for (const id of ['TLS1', 'cipherlist_AVERAGE', 'PFS', 'cert_chain_of_trust', 'LUCKY13', 'RC4']) {
    t.ok(
      findings.some(finding => finding.id.startsWith(id)),
      `it looked at ${id}`,
    )
  }
  t.same(
    findings.filter(({ id, severity }) => !['OK', 'INFO', 'LOW', 'DEBUG'].includes(severity) && !EXPECTED.has(id)),
    [],
  )
})
