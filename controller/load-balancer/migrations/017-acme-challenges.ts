import type { Migration } from '../../database/migrate.js'

/** Challenges of CAs that load balancers answer. */
export const acmeChallenges: Migration = {
  name: '017-acme-challenges',
  up: async trx => {
    await trx.raw(`
        -- A copy of the key manager's: all load balancers of the project answer a challenge until its row is gone.
        CREATE TABLE acme_challenge (
          id uuid PRIMARY KEY,
          project_id text NOT NULL,
          type text NOT NULL CHECK (type IN ('http-01', 'tls-alpn-01')),
          identifier text NOT NULL,
          token text NOT NULL,
          key_authorization text NOT NULL,
          digest text NOT NULL,
          created_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE INDEX acme_challenge_project ON acme_challenge (project_id);

        -- The challenges that all of its amphorae answered when it was last applied.
        ALTER TABLE load_balancer ADD COLUMN answered_challenges uuid[] NOT NULL DEFAULT '{}'`)
  },
}
