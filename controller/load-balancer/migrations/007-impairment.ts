import type { Migration } from '../../database/migrate.js'

/** Faults of amphorae, in addition to the reported statuses of listeners and pools. */
export const impairment: Migration = {
  name: '007-impairment',
  up: async trx => {
    await trx.raw(`
      -- operating status by listeners, pools and members; the API shows the worse of this and the impairment
      ALTER TABLE load_balancer ADD COLUMN reported_status text NOT NULL DEFAULT 'ONLINE';
      ALTER TABLE load_balancer ADD COLUMN impairment text CHECK (impairment IN ('ERROR', 'DEGRADED'));
      UPDATE load_balancer SET reported_status = operating_status;
      -- since when there has been a mismatch without interruption
      ALTER TABLE amphora_health ADD COLUMN mismatched_since timestamptz;
      -- last check of whether its agent is reachable
      ALTER TABLE amphora ADD COLUMN checked_at timestamptz;
    `)
  },
}
