import type { KeyObject } from 'node:crypto'
import type { Knex } from 'knex'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { badRequest } from '../../http/errors.js'
import { decodeUtf8 } from '../../x509/encoding/asn1.js'
import { InvalidX509 } from '../../x509/invalid-x509.js'
import { readPrivateKeyAsync } from '../../x509/private-key.js'
import { recordAudit } from '../audit/record.js'
import { KEY_COLUMNS, type KeyRow, sealedFrom } from '../crypto/keyring.js'
import { actorOf } from '../orders/order.js'
import type { Order } from '../orders/outcome.js'
import { isPermitted, type Requester, requireRight, type Target } from '../rights.js'
import { LIVE, payloadContext, targetColumns } from '../secrets/secret.js'
import type { Service } from '../service.js'

const ROLES = ['private_key', 'private_key_passphrase'] as const

type Role = (typeof ROLES)[number]

/** One secret of a container with a private key. */
type Part = Target &
  KeyRow & {
    role: Role
    id: string
    contentType: string
    ciphertext: Buffer | null
    /** The ACLs of secret and container are those of the time when the order was accepted. One that was taken away leaves only `updated_at` to tell. */
    unchanged: boolean
    container: Target
  }

/** The private key of a container, and what there is of a passphrase; the container's type decides whether there are any. */
async function findParts(database: Knex, containerId: string, orderId: string | null): Promise<readonly Part[]> {
  return many(
    database,
    sql<Part>`
     SELECT r.name AS role, s.id, ${targetColumns('s')}, s.content_type AS "contentType", s.ciphertext, ${KEY_COLUMNS},
            coalesce(greatest(coalesce(s.acl_updated_at, s.updated_at), coalesce(c.acl_updated_at, c.updated_at))
                     < (SELECT o.created_at FROM secret_order o WHERE o.id = ${orderId}::uuid), true) AS unchanged,
            json_build_object('projectId', c.project_id, 'creatorId', c.creator_id,
                              'projectAccess', c.acl_project_access, 'users', c.acl_users) AS container
       FROM container c
       JOIN container_secret r ON r.container_id = c.id AND r.name = ANY(${ROLES}::text[])
       JOIN secret s ON s.id = r.secret_id AND ${LIVE}
       LEFT JOIN project_key k ON k.id = s.project_key_id
      WHERE c.id = ${containerId} AND c.type = 'rsa' AND c.deleted_at IS NULL`,
  )
}

const NO_KEY = 'The container_ref names no container of type rsa with a private key.'

/**
 * Whether a caller may use the private key of a container of type rsa.
 * @throws ApiError 400 when there is no such key, 403 when the caller may not see the container or read one of its secrets
 */
export async function requireStoredKey(
  { database, config }: Service,
  who: Requester,
  containerId: string,
): Promise<void> {
  const parts = await findParts(database, containerId, null)
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
  /** Its payload as it was stored. */
  payload: Buffer
  contentType: string
  /** A secret of another project, which an ACL lets the order's creator read. */
  foreign: boolean
}

export type StoredKey = { key: KeyObject; parts: readonly StoredPart[] }

/**
 * Opens the private key that an order names. What the creator was allowed when the order was accepted still holds, unless an ACL has changed since: then
 * the creator must be allowed it without an administrator's rights.
 * @returns null when the creator may not use it any more
 * @throws InvalidX509 when it is gone or cannot be read
 */
export async function openStoredKey(
  { database, keyring, config }: Service,
  { id, projectId, creatorId }: Pick<Order, 'id' | 'projectId' | 'creatorId'>,
  containerId: string,
): Promise<StoredKey | null> {
  const who: Requester = { userId: creatorId, projectId, roles: ['member', 'creator'] }
  const found = await findParts(database, containerId, id)
  const mayUse = (part: Part) =>
    part.unchanged ||
    (isPermitted(config.policy, 'container show', who, part.container) &&
      isPermitted(config.policy, 'secret payload', who, part))
  if (!found.every(mayUse)) return null
  const parts = await Promise.all(
    found.map(async (part): Promise<StoredPart> => {
      if (part.ciphertext === null) throw new InvalidX509('A secret of the container has no payload.')
      // Whatever becomes of the order: what is read is on record before it is used.
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
  if (privateKey === undefined) throw new InvalidX509(NO_KEY)
  return { key: await readPrivateKeyAsync(privateKey, passphrase === undefined ? null : decodeUtf8(passphrase)), parts }
}
