import { writeCertificateRequest } from '../../../x509/certificate-request.js'
import { parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import { encodePem } from '../../../x509/encoding/pem.js'
import { OWN, tokenOf } from '../clients/callers.js'
import type { Json } from '../clients/json-answers.js'
import type { TestKeyManager } from '../clients/key-manager-api.js'
import { pathOf } from '../worlds/order-worker.js'
import { keyOf, NAMES } from './x509.js'

/** A certificate request, encoded as in orders. */
export const csr = (kind: 'RSA 2048' | 'P-256' | 'P-384', dn = 'CN=csr.example') =>
  Buffer.from(
    encodePem('CERTIFICATE REQUEST', writeCertificateRequest(parseDistinguishedName(dn), keyOf(kind), NAMES)),
  ).toString('base64')

/** The meta of an order for a stored key. */
export const storedMeta = (container_ref: string) => ({
  request_type: 'stored-key',
  container_ref,
  subject_dn: 'CN=s.example',
})

/** What the tests of certificate orders often do with a key manager. */
export function certificateOrderHelpers({ ask, database, store, url }: TestKeyManager) {
  const payloadOf = async (path: string): Promise<string> => (await ask('GET', `${path}/payload`)).text

  /** The secrets in the container of an order, by name. */
  async function resultOf(
    record: Json,
  ): Promise<{ container: Json; parts: Record<string, { secret: Json; payload: string }> }> {
    const { body: container } = await ask('GET', pathOf(record.container_ref))
    const parts: Record<string, { secret: Json; payload: string }> = {}
    const references = container.secret_refs as { name: string; secret_ref: string }[]
    for (const { name, secret_ref } of references) {
      const path = pathOf(secret_ref)
      parts[name] = { secret: (await ask('GET', path)).body, payload: await payloadOf(path) }
    }
    return { container, parts }
  }

  /** An rsa container with the parts of a stored key. */
  async function storedKey(
    passphrase: string | null = null,
    token = tokenOf('member'),
  ): Promise<{ ref: string; keyId: string }> {
    const stored = (payload: string, secret_type: string) =>
      store({ payload, payload_content_type: 'text/plain', secret_type }, token)
    const key = keyOf('RSA 2048')
    const pem =
      passphrase === null
        ? key.export({ format: 'pem', type: 'pkcs8' })
        : key.export({ format: 'pem', type: 'pkcs8', cipher: 'aes-256-cbc', passphrase })
    const keyId = await stored(pem.toString(), 'private')
    const refs = [
      ['private_key', keyId],
      ['public_key', await stored('public', 'public')],
      ...(passphrase === null ? [] : [['private_key_passphrase', await stored(passphrase, 'passphrase')]]),
    ].map(([name, id]) => ({ name, secret_ref: `${url}/v1/secrets/${id}` }))
    const made = await ask('POST', '/v1/containers', { type: 'rsa', secret_refs: refs }, { token })
    if (made.status !== 201) throw new Error(made.text)
    return { ref: String(made.body.container_ref), keyId }
  }

  /** A waiting order, without a worker that claims it. */
  async function waiting(meta: Record<string, unknown>) {
    return {
      id: await quiet(meta),
      projectId: OWN,
      creatorId: 'user-member',
      type: 'certificate' as const,
      meta,
      passphrase: null,
      retries: 0,
    }
  }

  async function quiet(meta: Record<string, unknown>): Promise<string> {
    const { rows } = await database.raw(
      `INSERT INTO secret_order (id, project_id, creator_id, type, meta, status)
       VALUES (gen_random_uuid(), ?, 'user-member', 'certificate', ?::jsonb, 'ERROR') RETURNING id`,
      [OWN, JSON.stringify(meta)],
    )
    return rows[0].id
  }

  return { resultOf, storedKey, waiting }
}
