import type { Migration } from '../../database/migrate.js'

export const quotas: Migration = {
  name: '002-quotas',
  up: async trx => {
    await trx.raw(`
    -- A project's limits; null means the configured default. A project's creates lock its row to run one by one.
    CREATE TABLE quota (
      project_id text PRIMARY KEY,
      network integer,
      subnet integer,
      port integer
    );
  `)
  },
}
