import type { Knex } from 'knex'
import { readCaCertificate } from '../../../../x509/certificate.js'
import { certificatesIn, encodePem } from '../../../../x509/encoding/pem.js'
import { many, maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { KEY_COLUMNS, type KeyRow, sealedFrom } from '../../crypto/keyring.js'
import { payloadContext } from '../../secrets/secret.js'
import type { Service } from '../../service.js'
import type { Identifier } from '../problem.js'
import type { CertificateId } from '../rules/certificate-id.js'

/** A certificate of the internal CA, and the ACME order that it comes from, if any. */
export type IssuedRecord = {
  caId: string
  pluginName: string
  caCertificate: string
  serial: string
  issuedAt: Date
  notAfter: Date
  revokedAt: Date | null
  accountId: string | null
  projectId: string | null
  identifiers: readonly Identifier[] | null
}

/** The certificates of our own CAs with a serial number: one, unless two CAs drew the same 128 bits. */
export const findBySerial = (database: Knex, serial: string): Promise<IssuedRecord[]> =>
  many(
    database,
    sql<IssuedRecord>`
      SELECT i.ca_id AS "caId", a.plugin_name AS "pluginName", a.certificate AS "caCertificate", i.serial, i.issued_at AS "issuedAt",
             i.not_after AS "notAfter", i.revoked_at AS "revokedAt", o.account_id AS "accountId", o.project_id AS "projectId", o.identifiers
        FROM issued_certificate i JOIN certificate_authority a ON a.id = i.ca_id
        LEFT JOIN acme_order o ON o.secret_order_id = i.order_id
       WHERE i.serial = ${serial} AND a.certificate IS NOT NULL`,
  )

/** The certificate that renewal information names; null if we issued no such one. */
export async function findByCertificateId(database: Knex, id: CertificateId): Promise<IssuedRecord | null> {
  const found = await findBySerial(database, id.serial)
  const isIssuer = ({ caCertificate }: IssuedRecord) =>
    readCaCertificate(caCertificate).keyIdentifier.toString('hex') === id.keyIdentifier
  return found.find(isIssuer) ?? null
}

/**
 * The PEM chain of an order's certificate: the certificate, then the CAs above it. Ends below the root, which clients
 * have, unless the root itself issued it: many clients read no chain of one certificate.
 * @returns null if the tenant has deleted the result of the order
 * @throws CryptoUnavailable
 */
export async function readChain(
  { database, keyring }: Service,
  { containerId, secretOrderId }: { containerId: string; secretOrderId: string },
): Promise<string | null> {
  const rows = await many(
    database,
    sql<KeyRow & { id: string; ciphertext: Buffer }>`
      SELECT s.id, s.ciphertext, ${KEY_COLUMNS}
        FROM container_secret r JOIN secret s ON s.id = r.secret_id JOIN project_key k ON k.id = s.project_key_id
       WHERE r.container_id = ${containerId} AND r.name = 'certificate' AND s.deleted_at IS NULL`,
  )
  const [row] = rows
  const issuer = await maybeOne(
    database,
    sql<{ chain: string }>`
      SELECT a.chain FROM issued_certificate i JOIN certificate_authority a ON a.id = i.ca_id WHERE i.order_id = ${secretOrderId}`,
  )
  if (row === undefined || issuer === undefined) return null
  // A certificate is public: reading it is no use of a secret that the audit log would name.
  const certificate = (await keyring.open(sealedFrom(row.ciphertext, row), payloadContext(row.id))).toString('utf8')
  return certificate + chainAbove(issuer.chain)
}

/** The CAs to send with a certificate. @param chain PEM of its issuer and all above, including the root */
export function chainAbove(chain: string): string {
  const authorities = certificatesIn(chain)
  const sent = authorities.length > 1 ? authorities.slice(0, -1) : authorities
  return sent.map(der => encodePem('CERTIFICATE', der)).join('')
}
