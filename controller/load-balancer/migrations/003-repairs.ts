import type { Migration } from '../../database/migrate.js'

/** What amphorae repair by themselves, and what they cannot. */
export const repairs: Migration = {
  name: '003-repairs',
  up: async trx => {
    await trx.raw(`
      ALTER TABLE load_balancer_event DROP CONSTRAINT load_balancer_event_kind_check;
      ALTER TABLE load_balancer_event ADD CHECK (kind IN ('requested', 'applied', 'failed', 'repaired'));

      -- the last repair that stands in the history, in milliseconds since 1970 by the amphora's clock
      ALTER TABLE amphora_health ADD COLUMN repaired_ms bigint NOT NULL DEFAULT 0;
      -- what it has not got as desired and cannot bring about by itself
      ALTER TABLE amphora_health ADD COLUMN mismatches text[] NOT NULL DEFAULT '{}';
    `)
  },
}
