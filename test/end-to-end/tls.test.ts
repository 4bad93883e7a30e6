import { X509Certificate } from 'node:crypto'
import t from 'tap'
import { makeBundle } from '../support/inputs/certificates.js'
import { certificateFor, createHttpsSite, keepOpen } from '../support/worlds/https-site.js'
import { startKrater } from '../support/worlds/krater.js'

/** HTTPS through a VIP, from a stored key to a certificate that is seen to be served. */

const REFERENCE = 'http://key-manager.test'
const NOWHERE = '00000000-0000-4000-8000-000000000000'

const serialOf = ({ certificate }: { certificate: string }) =>
  new X509Certificate(certificate).serialNumber.toLowerCase()

t.test('certificates are served, changed at runtime, and kept while the key manager is away', async t => {
  const krater = await startKrater(t)
  const first = certificateFor('www.example.com')
  const site = await createHttpsSite(t, krater, first)
  t.same(await site.ask('www.example.com'), { status: 200, serial: serialOf(first) })

  await t.test('a new certificate and more names take effect without a reload', async t => {
    let isClosed = false
    const kept = await keepOpen(site.vip, 'www.example.com', () => (isClosed = true))
    const [second, other] = [certificateFor('www.example.com', { kind: 'rsa' }), certificateFor('other.example.com')]
    await site.update({ default_tls_container_ref: await site.store(second) })
    t.equal((await site.ask('www.example.com')).serial, serialOf(second))
    await site.update({ sni_container_refs: [await site.store(other)] })
    t.equal((await site.ask('other.example.com')).serial, serialOf(other))
    await site.update({ sni_container_refs: [] })
    await t.rejects(site.ask('other.example.com'), /altnames/, 'the default certificate again')
    const costly = certificateFor('www.example.com')
    await site.update({ default_tls_container_ref: await site.storeBytes(makeBundle(costly, ['-iter', '50000'])) })
    t.equal((await site.ask('www.example.com')).serial, serialOf(costly), 'also from a bundle that takes long to open')
    t.same((await site.transitions()).slice(0, 4), ['runtime', 'runtime', 'runtime', 'runtime'])
    t.notOk(isClosed, 'a connection stays open')
    kept.destroy()
  })

  await t.test(
    'while the key manager hangs, everything else can change, and a new amphora waits for its certificate',
    async t => {
      const pid = krater.pidOf('key-manager-api')
      process.kill(pid, 'SIGSTOP')
      t.teardown(() => process.kill(pid, 'SIGCONT'))
      await site.send('PUT', `pools/${site.pool}`, { pool: { lb_algorithm: 'LEAST_CONNECTIONS' } })
      await site.applied()
      t.equal((await site.ask('www.example.com')).status, 200)
      const { status, message } = await site
        .send('PUT', `listeners/${site.listener}`, {
          listener: { sni_container_refs: [`${REFERENCE}/v1/secrets/${NOWHERE}`] },
        })
        .then(
          () => ({ status: 200, message: '' }),
          (error: Error & { status?: number }) => ({ status: error.status ?? 0, message: error.message }),
        )
      t.equal(status, 503, message)
    },
  )
})
