import type { Migration } from '../../database/migrate.js'

/** Whether amphorae send heartbeats and are reachable, and restarts of those that were not. */
export const reach: Migration = {
  name: '004-reach',
  up: async trx => {
    await trx.raw(`
      -- first heartbeat after the last gap
      ALTER TABLE amphora_health ADD COLUMN heard_since timestamptz NOT NULL DEFAULT now();
      -- null while its agent answers
      ALTER TABLE amphora ADD COLUMN unreachable_since timestamptz;

      CREATE TABLE amphora_restart (
        project_id text NOT NULL,
        amphora_id uuid NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
      );
      CREATE INDEX amphora_restart_recent ON amphora_restart (created_at);
    `)
  },
}
