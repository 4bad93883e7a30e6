import t from 'tap'
import { ApiError } from '../../../controller/http/errors.js'
import { listener } from '../../../controller/load-balancer/objects/listeners/resource.js'
import { pool } from '../../../controller/load-balancer/objects/pools/resource.js'
import { refuseUnsupported } from '../../../controller/load-balancer/schema/capabilities.js'
import { readBody, wrappedBody } from '../../../controller/load-balancer/schema/input.js'
import { createSchema } from '../../../controller/load-balancer/schema/resource.js'
import { amphoraCapabilities } from '../../../controller/provider/amphora/capabilities.js'
import { offersOf } from '../../support/inputs/placement.js'

const ID = '9691cd7d-d516-4a8e-902e-112909ae987d'
const LACKS = `Provider 'amphora' does not support a requested option: `
const NEW_LISTENER = wrappedBody('listener', createSchema(listener))
const amphora = amphoraCapabilities(offersOf())

/** What the amphora provider does with a new listener: `501` and the reason, `400` and the reason, or `accepted`. */
function outcome(extra: object): string {
  try {
    const body = { listener: { loadbalancer_id: ID, protocol: 'HTTP', protocol_port: 80, ...extra } }
    refuseUnsupported(amphora, listener, readBody(NEW_LISTENER, body) as Record<string, unknown>)
    return 'accepted'
  } catch (error) {
    if (!(error instanceof ApiError)) throw error
    return `${error.status} ${error.message.replace(LACKS, '')}`
  }
}

t.test('an option that the provider does not support is 501, an invalid one 400', async t => {
  const gap = (version: string) =>
    `501 Listener tls_versions leaves out ${version} between others, which HAProxy cannot`
  const refused: [object, string | RegExp][] = [
    [{ tls_versions: ['SSLv3'] }, '501 Listener tls_versions allows only SSLv3, which HAProxy does not know'],
    [{ tls_versions: ['TLSv1.3', 'TLSv1.1'] }, gap('TLSv1.2')],
    [{ tls_versions: ['TLSv1', 'TLSv1.1', 'TLSv1.3'] }, gap('TLSv1.2')],
    [{ tls_versions: ['TLSv1.2', 'TLSv1'] }, gap('TLSv1.1')],
    [{ tls_versions: ['TLSv1.4'] }, /^400 /],
    [{ client_authentication: 'SOMETIMES' }, /^400 .*one of: NONE, OPTIONAL, MANDATORY/],
  ]
  for (const [extra, reason] of refused) t.match(outcome(extra), reason, JSON.stringify(extra))
  const accepted = [
    ...[
      {},
      { protocol: 'UDP' },
      { protocol: 'SCTP' },
      { protocol: 'TERMINATED_HTTPS' },
      { allowed_cidrs: [] },
      { allowed_cidrs: null },
    ],
    ...[['TLSv1.3'], ['TLSv1.2', 'SSLv3', 'TLSv1.3'], ['TLSv1.1', 'TLSv1']].map(tls_versions => ({ tls_versions })),
    ...[{ hsts_max_age: 0 }, { sni_container_refs: [] }],
    ...['NONE', 'OPTIONAL'].map(client_authentication => ({ client_authentication })),
  ]
  for (const extra of accepted) t.equal(outcome(extra), 'accepted', JSON.stringify(extra))
  const versions = (tls_versions: string[]) => () => refuseUnsupported(amphora, pool, { tls_versions })
  t.throws(versions(['TLSv1', 'TLSv1.2']), { message: /Pool tls_versions leaves out TLSv1.1/ })
  t.doesNotThrow(versions(['TLSv1.2']))
})
