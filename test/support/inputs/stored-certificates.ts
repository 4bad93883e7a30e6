import type { ApiClient } from '../../../controller/cli/api-client.js'
import { makeBundle, makePair, makeRevocationList } from './certificates.js'

/** References to what a user has stored, as listeners and pools accept them. */
export type StoredCertificates = {
  /** To a certificate container. */
  container: string
  /** To a secret with a PKCS#12 bundle. */
  bundle: string
  /** To a secret with the authority's certificate, and to one with its revocation list. */
  authority: string
  revocationList: string
}

/** Stores a certificate in both forms, its authority and the authority's revocation list. */
export async function storeCertificates(client: ApiClient): Promise<StoredCertificates> {
  const root = makePair({ subject: '/CN=root' })
  const web = makePair({ issuer: root })
  const store = async (payload: string | Buffer): Promise<string> => {
    const isText = typeof payload === 'string'
    const body = isText
      ? { payload, payload_content_type: 'text/plain' }
      : {
          payload: payload.toString('base64'),
          payload_content_type: 'application/octet-stream',
          payload_content_encoding: 'base64',
        }
    const stored = (await client.request('key-manager', 'POST', '/v1/secrets', body)) as { secret_ref: string }
    return stored.secret_ref
  }
  const secret_refs = [
    { name: 'certificate', secret_ref: await store(web.certificate) },
    { name: 'private_key', secret_ref: await store(web.privateKey) },
    { name: 'intermediates', secret_ref: await store(root.certificate) },
  ]
  const made = await client.request('key-manager', 'POST', '/v1/containers', { type: 'certificate', secret_refs })
  return {
    container: (made as { container_ref: string }).container_ref,
    bundle: await store(makeBundle(web)),
    authority: await store(root.certificate),
    revocationList: await store(makeRevocationList(root)),
  }
}
