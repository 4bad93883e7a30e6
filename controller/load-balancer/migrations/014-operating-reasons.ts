import type { Migration } from '../../database/migrate.js'

/** Why objects are not ONLINE and since when, and the history of their operating statuses. */
export const operatingReasons: Migration = {
  name: '014-operating-reasons',
  up: async trx => {
    for (const table of ['load_balancer', 'listener', 'pool', 'member']) {
      // The time is unknown for objects that are older than the column.
      await trx.raw(`
        ALTER TABLE ${table} ADD COLUMN operating_reason text, ADD COLUMN operating_since timestamptz;
        ALTER TABLE ${table} ALTER COLUMN operating_since SET DEFAULT now();
      `)
    }
    await trx.raw(`
      -- why the impairment, and since when no amphora of the load balancer has been heard
      ALTER TABLE load_balancer ADD COLUMN impairment_reason text, ADD COLUMN unheard_since timestamptz;
      ALTER TABLE load_balancer_event DROP CONSTRAINT load_balancer_event_kind_check;
      ALTER TABLE load_balancer_event ADD CHECK (kind IN ('requested', 'applied', 'failed', 'repaired', 'closed', 'status_changed'));
    `)
  },
}
