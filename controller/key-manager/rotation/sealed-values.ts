import type { Database } from '../../database/connection.js'
import { execute, many } from '../../database/query.js'
import { type Fragment, identifier, join, sql } from '../../database/sql.js'
import { inTransaction, sqlState } from '../../database/transaction.js'
import { nonceKeyContext } from '../acme-server/signatures/nonces.js'
import { bindingKeyContext } from '../acme-server/store/binding-keys.js'
import { accountKeyContext } from '../certificate-authorities/acme/account.js'
import { authorityKeyContext } from '../certificate-authorities/authority.js'
import { pendingKeyContext } from '../certificate-authorities/issue/pending-key.js'
import { CannotOpen, type CryptoBackend, type ProjectKey } from '../crypto/backend.js'
import { passphraseContext } from '../orders/order.js'
import { payloadContext } from '../secrets/secret.js'

/** The columns encrypted with project keys, and the context that each value is bound to. */
const KINDS = [
  { table: 'secret', column: 'ciphertext', contextOf: payloadContext },
  { table: 'secret_order', column: 'sealed_passphrase', contextOf: passphraseContext },
  { table: 'certificate_authority', column: 'sealed_key', contextOf: authorityKeyContext },
  { table: 'acme_binding_key', column: 'sealed_key', contextOf: bindingKeyContext },
  { table: 'acme_nonce_key', column: 'sealed_key', contextOf: nonceKeyContext },
  { table: 'pending_certificate', column: 'sealed_key', contextOf: pendingKeyContext },
  { table: 'acme_client_account', column: 'sealed_key', contextOf: accountKeyContext },
] as const

type Kind = (typeof KINDS)[number]

type Value = { id: string; value: Buffer }

const MAX_VALUES = 200
const MAX_BYTES = 8_388_608

/** SQL: how many values are encrypted with the project keys (alias k) that match a condition. */
export const countValues = (condition: Fragment): Fragment =>
  join(
    KINDS.map(
      ({ table }) =>
        sql`(SELECT count(*) FROM ${identifier(table)} v JOIN project_key k ON k.id = v.project_key_id WHERE ${condition})`,
    ),
    ' + ',
  )

/**
 * Re-encrypts all values of one project key with another, in batches. A value that is deleted meanwhile stays
 * deleted; nothing else of its row changes. Values are written only once, so a value cannot change between
 * its read and its replacement.
 * @param onBatch gets the number of values done
 * @returns how many cannot be decrypted; they stay under the former key
 */
export async function resealAll(
  database: Database,
  backend: CryptoBackend,
  { from, to }: { from: ProjectKey; to: ProjectKey },
  onBatch: (done: number) => void,
): Promise<number> {
  let unreadable = 0
  for (const kind of KINDS) {
    for (let last = '00000000-0000-0000-0000-000000000000'; ; ) {
      const values = await batchAfter(database, kind, from.id, last)
      last = values.at(-1)?.id ?? last
      if (values.length === 0) break
      const resealed = await Promise.all(values.map(value => reseal(backend, kind, value, { from, to })))
      const readable = resealed.filter(value => value !== null)
      if (readable.length > 0) await storeResealed(database, kind, readable, { from, to })
      unreadable += resealed.length - readable.length
      onBatch(readable.length)
    }
  }
  return unreadable
}

/** Limits the bytes of a batch, but returns at least one value, whatever its size. */
async function batchAfter(database: Database, { table, column }: Kind, keyId: string, last: string): Promise<Value[]> {
  return many(
    database,
    sql<Value>`SELECT id, value
       FROM (SELECT id, value, row_number() OVER (ORDER BY id) AS number, sum(octet_length(value)) OVER (ORDER BY id) AS bytes
               FROM (SELECT id, ${identifier(column)} AS value FROM ${identifier(table)} WHERE project_key_id = ${keyId} AND id > ${last}
                      ORDER BY id LIMIT ${MAX_VALUES}) page) counted
      WHERE number = 1 OR bytes <= ${MAX_BYTES} ORDER BY id`,
  )
}

async function reseal(
  backend: CryptoBackend,
  { contextOf }: Kind,
  { id, value }: Value,
  { from, to }: { from: ProjectKey; to: ProjectKey },
): Promise<Value | null> {
  try {
    const plaintext = await backend.decrypt(from, value, contextOf(id))
    return { id, value: await backend.encrypt(to, plaintext, contextOf(id)) }
  } catch (error) {
    if (error instanceof CannotOpen) return null
    throw error
  }
}

async function storeResealed(
  database: Database,
  { table, column }: Kind,
  values: readonly Value[],
  { from, to }: { from: ProjectKey; to: ProjectKey },
): Promise<void> {
  await inTransaction(database, trx =>
    execute(
      trx,
      sql`UPDATE ${identifier(table)} v SET ${identifier(column)} = new.value, project_key_id = ${to.id}
            FROM unnest(${values.map(({ id }) => id)}::uuid[], ${values.map(({ value }) => value)}::bytea[]) AS new(id, value)
           WHERE v.id = new.id AND v.project_key_id = ${from.id}`,
    ),
  )
}

/** Whether a foreign key failed: the project key to delete is still in use, or the one to use is already deleted. */
export const isKeyInUse = (error: unknown): boolean => sqlState(error) === '23503'
