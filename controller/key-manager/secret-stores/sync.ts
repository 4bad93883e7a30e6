import type { Database } from '../../database/connection.js'
import { execute, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import type { BackendName } from '../crypto/backend.js'
import { newId } from '../ids.js'

/** A store as it is configured. */
export type ConfiguredStore = { name: string; backend: BackendName; globalDefault: boolean }

/** A store that some project prefers is not configured any more. */
export class StoreStillPreferred extends Error {}

/**
 * Makes the table of stores say what is configured; a store keeps its id as long as its back end is in use.
 * @throws StoreStillPreferred
 */
export async function syncSecretStores(database: Database, stores: readonly ConfiguredStore[]): Promise<void> {
  const backends = stores.map(({ backend }) => backend)
  await inTransaction(database, async trx => {
    // Processes that start at once take turns; a project cannot choose a store that is just going.
    await execute(trx, sql`LOCK TABLE secret_store, project_secret_store IN SHARE ROW EXCLUSIVE MODE`)
    const preferred = await maybeOne(
      trx,
      sql<{ name: string; projects: number }>`
        SELECT s.name, count(*) AS projects FROM secret_store s JOIN project_secret_store p ON p.secret_store_id = s.id
         WHERE NOT s.crypto_plugin = ANY(${backends}::text[]) GROUP BY s.id`,
    )
    if (preferred !== undefined) {
      throw new StoreStillPreferred(
        `The secret store "${preferred.name}" is not configured any more, but ${preferred.projects} ${preferred.projects === 1 ? 'project prefers' : 'projects prefer'} it. Put its back end back into key_manager.crypto.backends, or let them choose another one first.`,
      )
    }
    await execute(trx, sql`DELETE FROM secret_store WHERE NOT crypto_plugin = ANY(${backends}::text[])`)
    for (const { name, backend, globalDefault } of stores) {
      await execute(
        trx,
        sql`INSERT INTO secret_store (id, name, secret_store_plugin, crypto_plugin, global_default)
         VALUES (${newId()}, ${name}, 'store_crypto', ${backend}, ${globalDefault})
         ON CONFLICT (crypto_plugin) DO UPDATE
           SET name = excluded.name, global_default = excluded.global_default, updated_at = clock_timestamp()
         WHERE (secret_store.name, secret_store.global_default) IS DISTINCT FROM (excluded.name, excluded.global_default)`,
      )
    }
  })
}

/** The back end of the store that a project prefers; null when it has chosen none. */
export async function preferredBackend(database: Database, projectId: string): Promise<BackendName | null> {
  const found = await maybeOne(
    database,
    sql<{ backend: BackendName }>`
      SELECT s.crypto_plugin AS backend FROM project_secret_store p JOIN secret_store s ON s.id = p.secret_store_id
       WHERE p.project_id = ${projectId}`,
  )
  return found?.backend ?? null
}
