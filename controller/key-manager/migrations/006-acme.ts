import type { Migration } from '../../database/migrate.js'

/** Certificates from external CAs that speak ACME: they take more than one step. */
export const acme: Migration = {
  name: '006-acme',
  up: async trx => {
    await trx.raw(`
        -- A certificate that a CA is working on; id is the order's, also for a renewal. sealed_key is the new private key,
        -- null if the key is stored elsewhere. state is the CA back end's.
        CREATE TABLE pending_certificate (
          id uuid PRIMARY KEY,
          project_id text NOT NULL,
          project_key_id uuid REFERENCES project_key,
          sealed_key bytea,
          state jsonb NOT NULL DEFAULT '{}',
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          CHECK ((sealed_key IS NULL) = (project_key_id IS NULL))
        );
        CREATE INDEX pending_certificate_key ON pending_certificate (project_key_id, id) WHERE project_key_id IS NOT NULL;
        CREATE INDEX pending_certificate_project ON pending_certificate (project_id);

        -- Our account at each directory. Its key belongs to the service itself.
        CREATE TABLE acme_client_account (
          id uuid PRIMARY KEY,
          directory_url text NOT NULL UNIQUE,
          url text,
          project_key_id uuid NOT NULL REFERENCES project_key,
          sealed_key bytea NOT NULL,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX acme_client_account_key ON acme_client_account (project_key_id, id);

        -- The orders of a day at the CA, which limits the whole account.
        CREATE TABLE acme_client_order (
          id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
          project_id text NOT NULL,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX acme_client_order_project ON acme_client_order (project_id, created_at);
        CREATE INDEX acme_client_order_created ON acme_client_order (created_at);

        -- Challenges that a CA validates. Load balancers of the project serve http-01 (the key authorization, under the
        -- token) and tls-alpn-01 (the digest, for the identifier), set served_at once they do, and stop when the row is
        -- gone. The hook of dns-01 publishes the digest. request_id is the pending certificate's.
        CREATE TABLE published_challenge (
          id uuid PRIMARY KEY,
          request_id uuid NOT NULL,
          project_id text NOT NULL,
          type text NOT NULL CHECK (type IN ('http-01', 'tls-alpn-01', 'dns-01')),
          identifier text NOT NULL,
          token text NOT NULL,
          key_authorization text NOT NULL,
          digest bytea NOT NULL,
          expires_at timestamptz NOT NULL,
          served_at timestamptz,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          UNIQUE (request_id, type, token)
        );
        CREATE INDEX published_challenge_project ON published_challenge (project_id, created_at, id);

        -- An external CA has no certificate here: each of its certificates brings its own chain.
        ALTER TABLE certificate_authority ALTER COLUMN certificate DROP NOT NULL, ALTER COLUMN serial DROP NOT NULL,
          ALTER COLUMN chain DROP NOT NULL, ALTER COLUMN pkcs7 DROP NOT NULL;`)
  },
}
