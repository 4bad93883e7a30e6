import type { Migration } from '../../database/migrate.js'

/** Upgrades of agents in place. */
export const agentUpgrades: Migration = {
  name: '023-agent-upgrades',
  up: async trx => {
    await trx.raw(`
        -- SHA-256 of the agent's file. Null if its agent has not been asked yet, or cannot be upgraded in place.
        ALTER TABLE amphora ADD COLUMN agent_bundle text,
        -- Which agent it should get, and since when.
                            ADD COLUMN upgrade_to text, ADD COLUMN upgrade_asked_at timestamptz,
        -- Why the latest upgrade failed: bundle, text, at.
                            ADD COLUMN upgrade_fault jsonb;
        CREATE INDEX amphora_upgrade_to ON amphora (load_balancer_id) WHERE upgrade_to IS NOT NULL;
        -- The agents that workers bring along, and when one of them last said so.
        CREATE TABLE controller_bundle (
          sha256  text PRIMARY KEY,
          seen_at timestamptz NOT NULL DEFAULT now()
        )`)
  },
}
