import type { KeyObject } from 'node:crypto'
import type { Knex } from 'knex'
import { decodeUtf8 } from '../../../x509/encoding/asn1.js'
import { InvalidX509 } from '../../../x509/invalid-x509.js'
import { readPrivateKeyAsync } from '../../../x509/private-key.js'
import { many } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { badRequest } from '../../http/errors.js'
import { recordAudit } from '../audit/record.js'
import { KEY_COLUMNS, type KeyRow, sealedFrom } from '../crypto/keyring.js'
import { actorOf } from '../orders/order.js'
import type { Order } from '../orders/outcome.js'
import { isPermitted, type Requester, requireRight, type Target } from '../rights.js'
import { LIVE, payloadContext, targetColumns } from '../secrets/secret.js'
import type { Service } from '../service.js'

const ROLES = ['private_key', 'private_key_passphrase'] as const

type Role = (typeof ROLES)[number]

/** One secret of a container, with the container's access rules. */
type Part = Target &
  KeyRow & {
    role: Role
    id: string
    contentType: string
    ciphertext: Buffer | null
    /**
     * Whether the ACLs of secret and container are those at the time the order was accepted. A removed ACL
     * shows only in `updated_at`.
     */
    unchanged: boolean
    container: Target
  }

/** A container with a key, and when the rights to it were last checked: SQL of a time, null if they never were. */
type KeyContainer = { id: string; type: 'rsa' | 'certificate'; checkedAt: Fragment }

/** The private key and passphrase, if any, of a container. */
async function findParts(database: Knex, { id, type, checkedAt }: KeyContainer): Promise<readonly Part[]> {
  return many(
    database,
    sql<Part>`
     SELECT r.name AS role, s.id, ${targetColumns('s')}, s.content_type AS "contentType", s.ciphertext, ${KEY_COLUMNS},
            coalesce(greatest(coalesce(s.acl_updated_at, s.updated_at), coalesce(c.acl_updated_at, c.updated_at))
                     < (${checkedAt})::timestamptz, false) AS unchanged,
            json_build_object('projectId', c.project_id, 'creatorId', c.creator_id,
                              'projectAccess', c.acl_project_access, 'users', c.acl_users) AS container
       FROM container c
       JOIN container_secret r ON r.container_id = c.id AND r.name = ANY(${ROLES}::text[])
       JOIN secret s ON s.id = r.secret_id AND ${LIVE}
       LEFT JOIN project_key k ON k.id = s.project_key_id
      WHERE c.id = ${id} AND c.type = ${type} AND c.deleted_at IS NULL`,
  )
}

const NO_KEY = 'The container_ref does not refer to a container of type rsa with a private key.'
const KEY_GONE = 'The container of the certificate has no private key any more.'

/**
 * Checks that a caller may use the private key of a container of type rsa.
 * @throws ApiError 400 if there is no such key, 403 if the caller may not see the container or read one of its secrets
 */
export async function requireStoredKey(
  { database, config }: Service,
  who: Requester,
  containerId: string,
): Promise<void> {
  const parts = await findParts(database, { id: containerId, type: 'rsa', checkedAt: sql`NULL` })
  if (!parts.some(({ role }) => role === 'private_key')) throw badRequest(NO_KEY)
  for (const part of parts) {
    requireRight(config.policy, 'container show', who, part.container)
    requireRight(config.policy, 'secret payload', who, part)
    if (part.ciphertext === null) throw badRequest('A secret of the container has no payload.')
  }
}

export type StoredPart = {
  role: Role
  secretId: string
  payload: Buffer
  contentType: string
  /** Whether another project owns the secret, which an ACL lets the order's creator read. */
  foreign: boolean
}

export type StoredKey = { key: KeyObject; parts: readonly StoredPart[] }

/**
 * Opens the stored private key of an order.
 * @returns null if its creator may no longer use it
 * @throws InvalidX509 if it was deleted or cannot be read
 */
export const openStoredKey = (service: Service, order: KeyUser, containerId: string): Promise<StoredKey | null> =>
  openKey(service, order, {
    id: containerId,
    type: 'rsa',
    checkedAt: sql`SELECT o.created_at FROM secret_order o WHERE o.id = ${order.id}`,
  })

/**
 * Opens the private key in the container of a certificate, for its renewal.
 * @returns null if the order's creator may no longer use it
 * @throws InvalidX509 if it was deleted or cannot be read
 */
export const openKeyOfCertificate = (
  service: Service,
  order: KeyUser,
  containerId: string,
): Promise<StoredKey | null> =>
  openKey(service, order, {
    id: containerId,
    type: 'certificate',
    checkedAt: sql`SELECT held.checked_at FROM certificate held WHERE held.id = ${containerId}`,
  })

type KeyUser = Pick<Order, 'id' | 'projectId' | 'creatorId'>

/**
 * The creator's rights still hold as they were last checked, unless an ACL has changed since; then the creator must be
 * allowed without an administrator's rights.
 */
async function openKey(
  { database, keyring, config }: Service,
  { id, projectId, creatorId }: KeyUser,
  container: KeyContainer,
): Promise<StoredKey | null> {
  const who: Requester = { userId: creatorId, projectId, roles: ['member', 'creator'] }
  const found = await findParts(database, container)
  const mayUse = (part: Part) =>
    part.unchanged ||
    (isPermitted(config.policy, 'container show', who, part.container) &&
      isPermitted(config.policy, 'secret payload', who, part))
  if (!found.every(mayUse)) return null
  const parts = await Promise.all(
    found.map(async (part): Promise<StoredPart> => {
      if (part.ciphertext === null) throw new InvalidX509('A secret of the container has no payload.')
      // Recorded before the payload is read, whatever the outcome of the order.
      await recordAudit(database, actorOf({ projectId, creatorId }), {
        action: 'secret.payload.read',
        outcome: 'success',
        targetType: 'secret',
        targetId: part.id,
        detail: { order: id },
      })
      const payload = await keyring.open(sealedFrom(part.ciphertext, part), payloadContext(part.id))
      const { role, id: secretId, contentType } = part
      return { role, secretId, payload, contentType, foreign: part.projectId !== projectId }
    }),
  )
  const payloadOf = (role: Role) => parts.find(part => part.role === role)?.payload
  const privateKey = payloadOf('private_key')
  const passphrase = payloadOf('private_key_passphrase')
  if (privateKey === undefined) throw new InvalidX509(container.type === 'rsa' ? NO_KEY : KEY_GONE)
  return { key: await readPrivateKeyAsync(privateKey, passphrase === undefined ? null : decodeUtf8(passphrase)), parts }
}
