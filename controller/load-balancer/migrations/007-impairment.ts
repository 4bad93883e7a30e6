import type { Migration } from '../../database/migrate.js'

/** What amphorae lack, beside what they report of listeners and pools. */
export const impairment: Migration = {
  name: '007-impairment',
  up: async trx => {
    await trx.raw(`
      -- the operating status as listeners, pools and members have it; what is shown is the worse of this and the impairment
      ALTER TABLE load_balancer ADD COLUMN reported_status text NOT NULL DEFAULT 'ONLINE';
      ALTER TABLE load_balancer ADD COLUMN impairment text CHECK (impairment IN ('ERROR', 'DEGRADED'));
      UPDATE load_balancer SET reported_status = operating_status;
      -- since when something is amiss without a pause
      ALTER TABLE amphora_health ADD COLUMN mismatched_since timestamptz;
      -- when its agent was last asked whether it can be reached
      ALTER TABLE amphora ADD COLUMN checked_at timestamptz;
    `)
  },
}
