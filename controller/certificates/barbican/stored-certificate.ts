import { createHash } from 'node:crypto'
import { InvalidX509 } from '../../../x509/invalid-x509.js'
import { assemble } from '../../../x509/material/assemble.js'
import { itemsOf, type Reader } from '../../../x509/material/load.js'
import { Unusable } from '../../../x509/material/material.js'
import { pathOf, readReference } from '../../../x509/material/reference.js'
import { sendAsServiceUser } from './as-service-user.js'
import type { KeyManagerClient } from './key-manager-client.js'
import { partsIn, readAnswer, secretSchema } from './resources.js'
import type { ServiceUser } from './service-user.js'

/** PEM texts: the server's own certificate with those above it, and its key. */
export type StoredCertificate = { certificate: string; key: string }

type Options = { client: KeyManagerClient; serviceUser: ServiceUser; seconds: number }

/**
 * Follows a certificate of our own in the key manager: a certificate container or a PKCS#12 secret that our service
 * user may read. Reads the payloads only when the record has changed.
 * @returns a function that reads what the reference leads to now; null while it is what the last call returned. It throws
 *   Unusable, KeyManagerUnavailable and IdentityUnavailable
 */
export function followStoredCertificate(
  ref: string,
  { client, serviceUser, seconds }: Options,
): () => Promise<StoredCertificate | null> {
  const get = async (path: string, accept?: string): Promise<Buffer> => {
    const request = { method: 'GET' as const, path, ...(accept !== undefined && { accept }) }
    const { status, bytes } = await sendAsServiceUser(client, serviceUser, request, AbortSignal.timeout(seconds * 1000))
    if (status === 200) return bytes
    throw new Unusable(
      `our service user gets ${status} for ${path}: it does not exist, or no ACL lets that user read it`,
    )
  }
  const reader: Reader = {
    payload: async target => {
      const path = pathOf(target)
      const { content_types: types } = readAnswer(secretSchema, await get(path), path)
      if (types?.default === undefined) throw new Unusable(`${path} has no payload`)
      return get(`${path}/payload`, types.default)
    },
    parts: async target => {
      const path = pathOf(target)
      return partsIn(await get(path), path)
    },
  }
  let [known, knownDigest] = ['', '']
  return async () => {
    const target = readReference(ref)
    const [item] = itemsOf({ certificates: [ref], authorities: [], revocationLists: [] })
    if (target === null || item === undefined) throw new Unusable('it does not refer to a secret or container')
    const record = createHash('sha256')
      .update(await get(pathOf(target)))
      .digest('hex')
    if (record === known) return null
    const { pem, digest } = assembled(await item.load(reader))
    known = record
    if (digest === knownDigest) return null
    knownDigest = digest
    const keyAt = pem.indexOf('-----BEGIN PRIVATE KEY-----')
    return { certificate: pem.slice(0, keyAt), key: pem.slice(keyAt) }
  }
}

/** Of one certificate, and an operator's own: it may take its few milliseconds on this thread. @throws Unusable */
function assembled(material: Parameters<typeof assemble>[0]) {
  try {
    return assemble(material)
  } catch (error) {
    if (error instanceof InvalidX509) throw new Unusable(error.message.replace(/\.$/, ''))
    throw error
  }
}
