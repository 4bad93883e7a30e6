import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ConnectionOptions, connect } from 'node:tls'
import t from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { defaultTlsOptions } from '../../../controller/load-balancer/objects/listeners/tls-options.js'
import { listenerTlsDefaults } from '../../../controller/load-balancer/objects/listeners/tls-rules.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { aListener, aMember, aPool, aTree, aVipInterface, someFacts, uuid } from '../../golden/models.js'
import { REF } from '../../support/inputs/load-balancer-options.js'
import { ownPorts } from '../../support/ports.js'
import { checkWithHaproxy, startHaproxy } from '../../support/services/haproxy.js'

/** The configuration "intermediate" of https://ssl-config.mozilla.org/guidelines/5.8.json, as far as it is about TLS. */
const INTERMEDIATE = {
  tls_versions: ['TLSv1.2', 'TLSv1.3'],
  ciphersuites: ['TLS_AES_128_GCM_SHA256', 'TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256'],
  ciphers: [
    'ECDHE-ECDSA-AES128-GCM-SHA256',
    'ECDHE-RSA-AES128-GCM-SHA256',
    'ECDHE-ECDSA-AES256-GCM-SHA384',
    'ECDHE-RSA-AES256-GCM-SHA384',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
    'ECDHE-RSA-CHACHA20-POLY1305',
  ],
  tls_curves: ['X25519MLKEM768', 'X25519', 'prime256v1', 'secp384r1'],
  server_preferred_order: false,
}

const directory = mkdtempSync(join(tmpdir(), 'krater-default-tls-'))
t.teardown(() => rmSync(directory, { recursive: true }))

const settings = configurationSchema.parse({}).load_balancer
const listenerDefaults = listenerTlsDefaults(settings, 'TERMINATED_HTTPS')
const poolDefaults = defaultTlsOptions(settings, settings.default_pool_ciphers)
const named = (options: typeof listenerDefaults) => ({
  tlsCiphers: options.tls_ciphers,
  tlsVersions: options.tls_versions,
  alpnProtocols: options.alpn_protocols,
})

const [port = 0, other = 0] = await ownPorts(2)
const certificate = { defaultTlsContainerRef: REF }
const main = { ...certificate, defaultPoolId: uuid(3, 1), ...named(listenerDefaults) }
const tree = aTree({
  listeners: [
    aListener(1, { protocol: 'TERMINATED_HTTPS', protocolPort: port, ...main }),
    // The API has no defaults for it.
    aListener(2, { protocol: 'PROMETHEUS', protocolPort: other, ...certificate }),
  ],
  pools: [aPool(1, { tlsEnabled: true, ...named(poolDefaults), members: [aMember(1)] })],
})
const facts = someFacts({ interfaces: [{ ...aVipInterface(), mtu: 65_535 }] })
const { haproxy } = renderDesired({ ...tree, vip: { ...tree.vip, address: '127.0.0.1' } }, facts)
if (haproxy === null) throw new Error('Nothing is rendered.')
const { text, tls } = haproxy

/** The value after a word of a line. */
const after = (line: string, word: string): string => new RegExp(` ${word} (\\S+)`).exec(line)?.[1] ?? ''
const linesOf = (word: string) => text.match(new RegExp(`^ {4}${word} .* ssl .*$`, 'gm')) ?? []

t.test('listeners and pools get versions, ciphers and suites of Mozilla’s intermediate profile', async t => {
  t.same(listenerDefaults.tls_versions, INTERMEDIATE.tls_versions)
  t.same(poolDefaults.tls_versions, INTERMEDIATE.tls_versions)
  const lines = [...linesOf('bind'), ...linesOf('server')]
  t.equal(lines.length, 3)
  for (const line of lines) {
    t.same([after(line, 'ssl-min-ver'), after(line, 'ssl-max-ver')], INTERMEDIATE.tls_versions)
    t.same(after(line, 'ciphers').split(':'), INTERMEDIATE.ciphers)
    t.same(after(line, 'ciphersuites').split(':'), INTERMEDIATE.ciphersuites)
  }
})

t.test('listeners have the curves of the profile that this HAProxy’s OpenSSL knows', async t => {
  const known: string[] = []
  for (const curve of INTERMEDIATE.tls_curves) {
    const alone = text.replaceAll(/ curves \S+/g, ` curves ${curve}`)
    if ((await checkWithHaproxy(directory, alone, { tls })).code === 0) known.push(curve)
  }
  t.ok(known.length >= 3, known.join())
  for (const line of linesOf('bind')) t.same(after(line, 'curves').split(':'), known)
})

t.test('HAProxy negotiates as the profile says', async t => {
  const running = await startHaproxy(directory, text, { tls })
  t.teardown(running.stop)
  for (const listening of [port, other]) {
    /** The outcome of a handshake: version, cipher, and whether the session has a ticket. */
    const negotiate = async (options: ConnectionOptions): Promise<string[]> => {
      const socket = connect({ host: '127.0.0.1', port: listening, rejectUnauthorized: false, ...options })
      try {
        await once(socket, 'secureConnect', { signal: AbortSignal.timeout(5_000) })
        return [socket.getProtocol() ?? '', socket.getCipher().name, ...(socket.getTLSTicket() ? ['ticket'] : [])]
      } catch (error) {
        return [String((error as NodeJS.ErrnoException).code)]
      } finally {
        socket.destroy()
      }
    }
    const old = { maxVersion: 'TLSv1.2' } as const
    for (const version of ['TLSv1', 'TLSv1.1'] as const) {
      const asked = { minVersion: version, maxVersion: version, ciphers: 'ALL:@SECLEVEL=0' }
      t.match(await negotiate(asked), ['ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION'], version)
    }
    // The certificate has an ECDSA key.
    const usable = INTERMEDIATE.ciphers.filter(cipher => cipher.includes('ECDSA'))
    for (const [first, ...rest] of [usable, usable.toReversed()]) {
      const asked = { ...old, ciphers: [first, ...rest].join(':') }
      t.same(await negotiate(asked), ['TLSv1.2', first], 'the client’s preference, without a ticket')
    }
    for (const cipher of usable) t.same(await negotiate({ ...old, ciphers: cipher }), ['TLSv1.2', cipher])
    for (const suites of [INTERMEDIATE.ciphersuites, INTERMEDIATE.ciphersuites.toReversed()]) {
      t.same((await negotiate({ ciphers: suites.join(':') })).slice(0, 2), ['TLSv1.3', suites[0]])
    }
    const others = 'ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES128-CCM:ECDHE-ECDSA-AES256-SHA384'
    t.match(await negotiate({ ...old, ciphers: others }), [/HANDSHAKE_FAILURE/])
    t.match(await negotiate({ ecdhCurve: 'P-521', minVersion: 'TLSv1.3' }), [/HANDSHAKE_FAILURE/])
    for (const curve of ['X25519', 'P-256', 'P-384']) {
      t.match(await negotiate({ ecdhCurve: curve, minVersion: 'TLSv1.3' }), ['TLSv1.3'], curve)
    }
  }
})
