import t from 'tap'
import { planProofs } from '../../../controller/housekeeping/proof/plan.js'
import { aListener, aTree } from '../../golden/models.js'

/** Which handshakes show what listeners serve. */

const names = (prefix: string, count: number) => Array.from({ length: count }, (_, at) => `${prefix}${at}.example.com`)
const rsa = { ref: 'rsa', digest: 'digest of rsa', names: names('a', 150), keyType: 'rsa' }
const ec = { ref: 'ec', digest: 'digest of ec', names: names('b', 2), keyType: 'ec' }
const listener = { protocol: 'TERMINATED_HTTPS' as const, defaultTlsContainerRef: 'rsa', sniContainerRefs: ['ec'] }

t.test('each certificate is proven by a name, however many names another one has', async t => {
  const proofs = planProofs(aTree({ listeners: [aListener(1, listener)] }), [rsa, ec])
  t.ok(proofs.some(({ name, accepted }) => name === 'b0.example.com' && accepted.includes(ec.digest)))
  t.equal(proofs.length, 101, 'no more than a hundred, and one without a name')
})

t.test('a kind of key that no cipher of the listener takes is not asked for', async t => {
  const only = (tlsVersions: ('TLSv1.2' | 'TLSv1.3')[], tlsCiphers: string) =>
    new Set(
      planProofs(aTree({ listeners: [aListener(1, { ...listener, tlsVersions, tlsCiphers })] }), [rsa, ec]).map(
        ({ keyType }) => keyType,
      ),
    )
  t.same(only(['TLSv1.2'], 'ECDHE-ECDSA-AES128-GCM-SHA256'), new Set(['ec']))
  t.same(only(['TLSv1.2'], 'ECDHE-RSA-AES128-GCM-SHA256'), new Set(['rsa']))
  t.same(only(['TLSv1.2', 'TLSv1.3'], 'ECDHE-RSA-AES128-GCM-SHA256'), new Set(['rsa', 'ec']), 'TLS 1.3 takes both')
})
