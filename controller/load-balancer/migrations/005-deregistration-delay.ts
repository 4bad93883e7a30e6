import type { Migration } from '../../database/migrate.js'

/** How long a removed member drains its connections; events record the connections closed then. */
export const deregistrationDelay: Migration = {
  name: '005-deregistration-delay',
  up: async trx => {
    await trx.raw(`
      ALTER TABLE pool ADD COLUMN deregistration_delay integer NOT NULL DEFAULT 30;
      ALTER TABLE load_balancer_event DROP CONSTRAINT load_balancer_event_kind_check;
      ALTER TABLE load_balancer_event ADD CHECK (kind IN ('requested', 'applied', 'failed', 'repaired', 'closed'));
    `)
  },
}
