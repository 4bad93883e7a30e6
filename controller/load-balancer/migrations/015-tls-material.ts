import type { Migration } from '../../database/migrate.js'

/** What load balancers are bound to at the key manager. */
export const tlsMaterial: Migration = {
  name: '015-tls-material',
  up: async trx => {
    await trx.raw(`
        -- What the key manager last told of a reference: digest and facts are public. problem: why the reference cannot
        -- be used any more; what it led to before stays in use.
        CREATE TABLE tls_material (
          id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
          load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
          ref text NOT NULL,
          kind text NOT NULL CHECK (kind IN ('certificate', 'authority', 'revocation list')),
          digest text,
          facts jsonb,
          problem text,
          problem_since timestamptz,
          checked_at timestamptz NOT NULL DEFAULT now(),
          PRIMARY KEY (load_balancer_id, ref, kind)
        );
        -- Hash of the references and amphorae that the key manager was last told of.
        ALTER TABLE load_balancer ADD COLUMN bound_sha256 text`)
  },
}
