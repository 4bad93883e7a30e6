import type { Migration } from '../../database/migrate.js'

/** Repairs by amphorae, and mismatches that they cannot repair. */
export const repairs: Migration = {
  name: '003-repairs',
  up: async trx => {
    await trx.raw(`
      ALTER TABLE load_balancer_event DROP CONSTRAINT load_balancer_event_kind_check;
      ALTER TABLE load_balancer_event ADD CHECK (kind IN ('requested', 'applied', 'failed', 'repaired'));

      -- last repair with an event, in milliseconds since 1970 by the amphora's clock
      ALTER TABLE amphora_health ADD COLUMN repaired_ms bigint NOT NULL DEFAULT 0;
      -- deviations from the desired state that the amphora cannot repair
      ALTER TABLE amphora_health ADD COLUMN mismatches text[] NOT NULL DEFAULT '{}';
    `)
  },
}
