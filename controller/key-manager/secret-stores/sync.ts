import type { Database } from '../../database/connection.js'
import { execute, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import type { BackendName } from '../crypto/backend.js'
import { newId } from '../ids.js'

/** A store from the settings. */
export type ConfiguredStore = { name: string; backend: BackendName; globalDefault: boolean }

/** A project prefers a store that is no longer configured. */
export class StoreStillPreferred extends Error {}

/**
 * Updates the table of stores from the settings. A store keeps its id while its back end is configured.
 * @throws StoreStillPreferred
 */
export async function syncSecretStores(database: Database, stores: readonly ConfiguredStore[]): Promise<void> {
  const backends = stores.map(({ backend }) => backend)
  await inTransaction(database, async trx => {
    // Serialises processes that start at once, and keeps projects from choosing a store during its removal.
    await execute(trx, sql`LOCK TABLE secret_store, project_secret_store IN SHARE ROW EXCLUSIVE MODE`)
    const preferred = await maybeOne(
      trx,
      sql<{ name: string; projects: number }>`
        SELECT s.name, count(*) AS projects FROM secret_store s JOIN project_secret_store p ON p.secret_store_id = s.id
         WHERE NOT s.crypto_plugin = ANY(${backends}::text[]) GROUP BY s.id`,
    )
    if (preferred !== undefined) {
      throw new StoreStillPreferred(
        `The secret store "${preferred.name}" is no longer configured, but ${preferred.projects} ${preferred.projects === 1 ? 'project prefers' : 'projects prefer'} it. Put its back end back into key_manager.crypto.backends, or have the projects choose another store first.`,
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

/** The back end of the store a project prefers; null if it chose none. */
export async function preferredBackend(database: Database, projectId: string): Promise<BackendName | null> {
  const found = await maybeOne(
    database,
    sql<{ backend: BackendName }>`
      SELECT s.crypto_plugin AS backend FROM project_secret_store p JOIN secret_store s ON s.id = p.secret_store_id
       WHERE p.project_id = ${projectId}`,
  )
  return found?.backend ?? null
}
