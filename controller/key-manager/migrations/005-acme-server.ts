import type { Migration } from '../../database/migrate.js'

/**
 * The ACME server. What has a status stores facts only (deactivated, revoked, expires, results of challenges); the
 * statuses of accounts, orders and authorizations follow from them.
 */
export const acmeServer: Migration = {
  name: '005-acme-server',
  up: async trx => {
    await trx.raw(`
        -- A key for external account binding; without its sealed key it is revoked.
        CREATE TABLE acme_binding_key (
          id uuid PRIMARY KEY,
          project_id text NOT NULL,
          creator_id text NOT NULL,
          name text,
          project_key_id uuid REFERENCES project_key,
          sealed_key bytea,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          revoked_at timestamptz,
          CHECK ((sealed_key IS NULL) = (project_key_id IS NULL)),
          CHECK ((sealed_key IS NULL) = (revoked_at IS NOT NULL))
        );
        CREATE INDEX acme_binding_key_of_project ON acme_binding_key (project_id, created_at, id);
        CREATE INDEX acme_binding_key_key ON acme_binding_key (project_key_id, id) WHERE project_key_id IS NOT NULL;

        -- The key of all processes for the MACs of nonces.
        CREATE TABLE acme_nonce_key (
          id uuid PRIMARY KEY,
          single boolean NOT NULL DEFAULT true UNIQUE CHECK (single),
          project_key_id uuid NOT NULL REFERENCES project_key,
          sealed_key bytea NOT NULL
        );
        CREATE INDEX acme_nonce_key_key ON acme_nonce_key (project_key_id, id);

        -- Nonces of verified requests, until they would be too old anyway.
        CREATE TABLE acme_used_nonce (
          nonce text PRIMARY KEY,
          expires_at timestamptz NOT NULL
        );
        CREATE INDEX acme_used_nonce_expiration ON acme_used_nonce (expires_at);

        CREATE TABLE acme_account (
          id uuid PRIMARY KEY,
          binding_key_id uuid NOT NULL REFERENCES acme_binding_key ON DELETE CASCADE,
          project_id text NOT NULL,
          jwk jsonb NOT NULL,
          thumbprint text NOT NULL UNIQUE,
          contact text[] NOT NULL DEFAULT '{}',
          deactivated_at timestamptz,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX acme_account_binding_key ON acme_account (binding_key_id);
        CREATE INDEX acme_account_of_project ON acme_account (project_id, created_at);

        -- secret_order_id: the order of the key manager that issues the certificate, once the order is finalized.
        CREATE TABLE acme_order (
          id uuid PRIMARY KEY,
          account_id uuid NOT NULL REFERENCES acme_account ON DELETE CASCADE,
          project_id text NOT NULL,
          identifiers jsonb NOT NULL,
          not_before timestamptz,
          not_after timestamptz,
          replaces text,
          secret_order_id uuid,
          expires_at timestamptz NOT NULL,
          -- Some time after its end or, once it is finalized, after that of its certificate.
          purge_at timestamptz NOT NULL,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX acme_order_of_account ON acme_order (account_id, created_at, id);
        CREATE INDEX acme_order_of_project ON acme_order (project_id, created_at);
        CREATE INDEX acme_order_secret_order ON acme_order (secret_order_id) WHERE secret_order_id IS NOT NULL;
        CREATE INDEX acme_order_replaces ON acme_order (replaces) WHERE replaces IS NOT NULL;
        CREATE INDEX acme_order_purge ON acme_order (purge_at);

        CREATE TABLE acme_authorization (
          id uuid PRIMARY KEY,
          order_id uuid NOT NULL REFERENCES acme_order ON DELETE CASCADE,
          account_id uuid NOT NULL,
          project_id text NOT NULL,
          position integer NOT NULL,
          type text NOT NULL,
          value text NOT NULL,
          wildcard boolean NOT NULL,
          expires_at timestamptz NOT NULL,
          deactivated_at timestamptz,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX acme_authorization_order ON acme_authorization (order_id, position);
        CREATE INDEX acme_authorization_of_project ON acme_authorization (project_id, created_at);
        CREATE INDEX acme_authorization_name ON acme_authorization (account_id, value);

        -- The queue of validations: a challenge in processing is due unless it is held or postponed.
        CREATE TABLE acme_challenge (
          id uuid PRIMARY KEY,
          authorization_id uuid NOT NULL REFERENCES acme_authorization ON DELETE CASCADE,
          account_id uuid NOT NULL,
          project_id text NOT NULL,
          position integer NOT NULL,
          type text NOT NULL,
          token text NOT NULL,
          status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'processing', 'valid', 'invalid')),
          error jsonb,
          responded_at timestamptz,
          settled_at timestamptz,
          retry_at timestamptz,
          attempts integer NOT NULL DEFAULT 0,
          lease_owner text,
          lease_until timestamptz,
          fence bigint NOT NULL DEFAULT 0
        );
        CREATE INDEX acme_challenge_authorization ON acme_challenge (authorization_id, position);
        CREATE INDEX acme_challenge_due ON acme_challenge (project_id, responded_at, id) WHERE status = 'processing';
        CREATE INDEX acme_challenge_failed ON acme_challenge (account_id, settled_at) WHERE status = 'invalid';

        -- Renewal information and revocation find certificates by their serial numbers, ACME orders theirs by the order.
        CREATE INDEX issued_certificate_serial ON issued_certificate (serial);
        CREATE INDEX issued_certificate_order ON issued_certificate (order_id) WHERE order_id IS NOT NULL;`)
  },
}
