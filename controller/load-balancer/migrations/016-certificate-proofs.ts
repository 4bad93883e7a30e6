import type { Migration } from '../../database/migrate.js'

/** What listeners were seen to serve. */
export const certificateProofs: Migration = {
  name: '016-certificate-proofs',
  up: async trx => {
    await trx.raw(`
        -- When the next proof of what its listeners serve is due; null without certificates.
        ALTER TABLE load_balancer ADD COLUMN proof_at timestamptz;
        CREATE INDEX load_balancer_proof ON load_balancer (proof_at) WHERE proof_at IS NOT NULL;

        -- The last handshake with a listener of an amphora. address: the VIP, or '' for the amphora itself, whoever has
        -- the VIP. name: what the client asked for, '' for nothing. digest: of the certificates that should be there.
        CREATE TABLE certificate_proof (
          load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
          listener_id uuid NOT NULL,
          amphora_id uuid NOT NULL,
          address text NOT NULL,
          name text NOT NULL,
          key_type text NOT NULL,
          digest text NOT NULL,
          served_since timestamptz,
          proven_at timestamptz,
          problem text,
          problem_since timestamptz,
          checked_at timestamptz NOT NULL DEFAULT now(),
          PRIMARY KEY (load_balancer_id, listener_id, amphora_id, address, name, key_type)
        );
        ALTER TABLE load_balancer_event DROP CONSTRAINT load_balancer_event_kind_check;
        ALTER TABLE load_balancer_event ADD CHECK
          (kind IN ('requested', 'applied', 'failed', 'repaired', 'closed', 'status_changed', 'certificate'))`)
  },
}
