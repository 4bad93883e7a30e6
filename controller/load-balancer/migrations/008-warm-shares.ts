import type { Migration } from '../../database/migrate.js'

/** Recent adoptions of warm amphorae, by project. */
export const warmShares: Migration = {
  name: '008-warm-shares',
  up: async trx => {
    await trx.raw(`
      CREATE TABLE amphora_adoption (
        project_id text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
      );
      CREATE INDEX amphora_adoption_recent ON amphora_adoption (project_id, created_at);
    `)
  },
}
