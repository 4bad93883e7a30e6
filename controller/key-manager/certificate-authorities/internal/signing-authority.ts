import { createPrivateKey, type KeyObject } from 'node:crypto'
import { KEY_COLUMNS, type KeyRow, sealedFrom } from '../../crypto/keyring.js'
import type { Service } from '../../routes.js'
import { authorityKeyContext } from '../authority.js'
import { type CaCertificate, readCaCertificate } from '../x509/certificate.js'

/** A CA that is ready to sign. */
export type SigningAuthority = { id: string; chain: string; key: KeyObject; own: CaCertificate }

/**
 * Opens the key of a CA, for one signature.
 * @returns null when there is no such CA
 * @throws CryptoUnavailable
 */
export async function openAuthority({ database, keyring }: Service, id: string): Promise<SigningAuthority | null> {
  const { rows } = await database.raw(
    `SELECT a.certificate, a.chain, a.sealed_key AS sealed, ${KEY_COLUMNS}
       FROM certificate_authority a JOIN project_key k ON k.id = a.project_key_id WHERE a.id = ?`,
    [id],
  )
  const [found] = rows as (KeyRow & { certificate: string; chain: string; sealed: Buffer })[]
  if (found === undefined) return null
  const der = await keyring.open(sealedFrom(found.sealed, found), authorityKeyContext(id))
  const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
  der.fill(0)
  return { id, chain: found.chain, key, own: readCaCertificate(found.certificate) }
}
