import type { Knex } from 'knex'

/**
 * Counts the rows of tables that PostgreSQL reads for statements, by whatever way.
 * @param trx all statements must be in this transaction: one connection counts them
 */
export async function rowsLookedAt(
  trx: Knex.Transaction,
  tables: readonly string[],
  statements: () => Promise<unknown>,
): Promise<number> {
  const names = tables.map(name => `'${name}'`).join(', ')
  // What the connection has read before may be in it too.
  const count = async (): Promise<number> => {
    const { rows } = await trx.raw<{ rows: [{ count: number }] }>(
      `SELECT sum(seq_tup_read + idx_tup_fetch)::integer AS count FROM pg_stat_xact_user_tables WHERE relname IN (${names})`,
    )
    return rows[0].count
  }
  const before = await count()
  await statements()
  return (await count()) - before
}
