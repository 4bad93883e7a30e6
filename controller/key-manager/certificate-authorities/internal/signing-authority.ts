import { createPrivateKey, type KeyObject } from 'node:crypto'
import { type CaCertificate, readCaCertificate } from '../../../../x509/certificate.js'
import { maybeOne } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { KEY_COLUMNS, type KeyRow, sealedFrom } from '../../crypto/keyring.js'
import type { Service } from '../../service.js'
import { authorityKeyContext } from '../authority.js'

/** A CA with its private key. */
export type SigningAuthority = {
  id: string
  chain: string
  key: KeyObject
  own: CaCertificate
  /** Whether its certificate or that of a CA above it was revoked. It then only signs its revocation list. */
  revoked: boolean
}

/** SQL: whether a CA or one above it was revoked. */
const isRevoked = (id: string): Fragment => sql`EXISTS (
  WITH RECURSIVE above AS (
    SELECT id, parent_id, serial FROM certificate_authority WHERE id = ${id}
    UNION ALL SELECT p.id, p.parent_id, p.serial FROM certificate_authority p JOIN above ON above.parent_id = p.id)
  SELECT FROM above JOIN issued_certificate c ON c.ca_id = above.parent_id AND c.serial = above.serial
   WHERE c.revoked_at IS NOT NULL)`

/**
 * Loads a CA and decrypts its private key.
 * @returns null if there is no such CA
 * @throws CryptoUnavailable
 */
export async function openAuthority({ database, keyring }: Service, id: string): Promise<SigningAuthority | null> {
  const found = await maybeOne(
    database,
    sql<KeyRow & { certificate: string; chain: string; sealed: Buffer; revoked: boolean }>`
      SELECT a.certificate, a.chain, a.sealed_key AS sealed, ${isRevoked(id)} AS revoked, ${KEY_COLUMNS}
        FROM certificate_authority a JOIN project_key k ON k.id = a.project_key_id WHERE a.id = ${id}`,
  )
  if (found === undefined) return null
  const der = await keyring.open(sealedFrom(found.sealed, found), authorityKeyContext(id))
  const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
  der.fill(0)
  return { id, chain: found.chain, key, own: readCaCertificate(found.certificate), revoked: found.revoked }
}
