import { readLeafCertificate } from '../../../../x509/leaf-certificate.js'
import { execute } from '../../../database/query.js'
import { json, sql } from '../../../database/sql.js'
import type { Transaction } from '../../../database/transaction.js'
import { recordAudit } from '../../audit/record.js'
import { actorOf } from '../../orders/order.js'
import type { Order } from '../../orders/outcome.js'
import type { IssuedCertificate } from '../ca-backend.js'

/** Wakes the workers that renew certificates. The payload is the id of the container. */
export const CERTIFICATE_CHANNEL = 'krater_certificate'

/** The certificate of an order, with its order and its container. */
export type CertificateOf = {
  order: Pick<Order, 'id' | 'projectId' | 'creatorId' | 'meta'>
  containerId: string
  renew: boolean
  newKey: boolean
}

/** Records that a CA issued a certificate, in the transaction that stores it. */
export async function recordIssue(
  trx: Transaction,
  order: Pick<Order, 'id' | 'projectId' | 'creatorId'>,
  { caId, serial, subjectDn, notAfter }: IssuedCertificate,
): Promise<void> {
  await execute(
    trx,
    sql`INSERT INTO issued_certificate (ca_id, serial, subject_dn, not_after, order_id)
        VALUES (${caId}, ${serial}, ${subjectDn}, ${notAfter}, ${order.id})`,
  )
  await execute(trx, sql`DELETE FROM pending_certificate WHERE id = ${order.id}`)
  await recordAudit(trx, actorOf(order), {
    action: 'certificate.issue',
    outcome: 'success',
    targetType: 'ca',
    targetId: caId,
    detail: { serial, subject_dn: subjectDn, order: order.id },
  })
}

/**
 * Stores what is known about the first certificate in an order's container. It is due at once, to be planned. Not for an
 * ACME client, which has the key and renews by another order: nobody would be served by notices about this one.
 */
export async function storeCertificate(
  trx: Transaction,
  { order, containerId, renew, newKey }: CertificateOf,
  { caId, certificate }: IssuedCertificate,
): Promise<void> {
  const { pem, serial, issuer, names, notBefore, notAfter } = readLeafCertificate(certificate)
  await execute(
    trx,
    sql`INSERT INTO certificate (id, project_id, creator_id, order_id, meta, renew, new_key, ca_id, serial, issuer, names, pem,
                                 not_before, not_after, info_at)
        SELECT ${containerId}::uuid, ${order.projectId}, ${order.creatorId}, ${order.id}::uuid, ${json(order.meta)}::jsonb,
               ${renew}::boolean, ${newKey}::boolean, ${caId}::uuid, ${serial}, ${issuer}, ${names}::text[], ${pem},
               ${notBefore}::timestamptz, ${notAfter}::timestamptz, now()
         WHERE NOT EXISTS (SELECT FROM acme_order WHERE secret_order_id = ${order.id}::uuid)`,
  )
  await execute(trx, sql`SELECT pg_notify(${CERTIFICATE_CHANNEL}, ${containerId}::text)`)
}
