import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { createSecureContext, createServer as createTlsServer, type SecureContext } from 'node:tls'
import pg from 'pg'
import type { Test } from 'tap'
import { randomSerial, writeCertificate } from '../../../x509/certificate.js'
import { octetString } from '../../../x509/encoding/asn1.js'
import { parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import { encodeName } from '../../../x509/encoding/name-encoding.js'
import { encodePem } from '../../../x509/encoding/pem.js'
import { extension, subjectAltName } from '../../../x509/extensions.js'
import { publicKeyOf } from '../../../x509/public-key.js'
import type { TestKeyManager } from '../clients/key-manager-api.js'

const ACME_IDENTIFIER = '1.3.6.1.5.5.7.1.31'

export type ChallengeResponder = {
  /** Types that it serves from now on. */
  serves: Set<string>
  /** What was asked for. */
  served: string[]
  /** The tokens of http-01 that were asked for, with their names. A CA may ask several times. */
  tokens: Set<string>
}

/**
 * Serves the stored challenges as load balancers do, until the end of the test: http-01 on one port, tls-alpn-01 on the
 * other.
 */
export async function startChallengeResponder(
  t: Test,
  { database, databaseUrl }: Pick<TestKeyManager, 'database' | 'databaseUrl'>,
  { httpPort, tlsPort }: { httpPort: number; tlsPort: number },
): Promise<ChallengeResponder> {
  const responder: ChallengeResponder = { serves: new Set(['http-01', 'tls-alpn-01']), served: [], tokens: new Set() }
  const markServed = async () => {
    await database('published_challenge')
      .whereIn('type', [...responder.serves])
      .whereNull('served_at')
      .update({ served_at: new Date() })
  }
  const listener = new pg.Client({ connectionString: databaseUrl })
  await listener.connect()
  listener.on('notification', () => void markServed().catch(() => undefined))
  await listener.query('LISTEN krater_published_challenge')

  const web = createHttpServer((asked, answer) => {
    const token = asked.url?.replace('/.well-known/acme-challenge/', '') ?? ''
    database('published_challenge')
      .where({ type: 'http-01', token })
      .first()
      .then(
        row => {
          responder.served.push(`http-01 ${row?.identifier}`)
          responder.tokens.add(`${token} ${row?.identifier}`)
          answer.writeHead(row === undefined ? 404 : 200).end(row?.key_authorization)
        },
        () => answer.destroy(),
      )
  })
  web.listen(httpPort, '127.0.0.1')
  await once(web, 'listening')

  const tls = createTlsServer({
    ALPNProtocols: ['acme-tls/1'],
    SNICallback: (name, done) => {
      database('published_challenge')
        .where({ type: 'tls-alpn-01', identifier: name })
        .first()
        .then(row => {
          responder.served.push(`tls-alpn-01 ${name}`)
          done(null, row === undefined ? undefined : challengeContext(name, row.digest))
        }, done)
    },
  })
  tls.on('tlsClientError', () => undefined)
  tls.on('secureConnection', socket => socket.on('error', () => undefined).end())
  tls.listen(tlsPort, '127.0.0.1')
  await once(tls, 'listening')

  t.teardown(async () => {
    await listener.end()
    web.closeAllConnections()
    web.close()
    tls.close()
  })
  return responder
}

/** The self-signed certificate of RFC 8737 for a name. */
function challengeContext(name: string, digest: Buffer): SecureContext {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
  const subject = encodeName(parseDistinguishedName('CN=challenge'))
  const der = writeCertificate(
    {
      ...{ serial: randomSerial(), issuer: subject, subject, publicKey: publicKeyOf(privateKey) },
      notBefore: new Date(Date.now() - 60_000),
      notAfter: new Date(Date.now() + 3_600_000),
      extensions: [
        subjectAltName([{ kind: 'dns', value: name }], false),
        extension(ACME_IDENTIFIER, octetString(digest), { critical: true }),
      ],
    },
    privateKey,
  )
  return createSecureContext({
    cert: encodePem('CERTIFICATE', der),
    key: privateKey.export({ format: 'pem', type: 'pkcs8' }),
  })
}
