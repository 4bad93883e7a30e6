import type { Migration } from '../../database/migrate.js'

/**
 * The tables of the key manager.
 *
 * Secrets are stored only as ciphertext under a project's key (project_key), which is wrapped by a master key
 * outside the database. Deleting a secret removes its ciphertext at once; the row stays as a tombstone until it is
 * purged.
 */
export const keyManager: Migration = {
  name: '001-key-manager',
  up: async trx => {
    await trx.raw(`
        -- The format of times that Barbican clients read: UTC, no zone, microseconds unless they are 0.
        CREATE FUNCTION iso_time(t timestamptz) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
          SELECT to_char(t AT TIME ZONE 'UTC', CASE WHEN date_trunc('second', t) = t
            THEN 'YYYY-MM-DD"T"HH24:MI:SS' ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US' END)
        $$;

        -- All master keys ever used, each with a value to recognise it. One per back end is active: it wraps new
        -- project keys, whatever the order of the keys in a process's settings.
        CREATE TABLE master_key (
          id text PRIMARY KEY,
          backend text NOT NULL,
          active boolean NOT NULL DEFAULT true,
          check_value bytea NOT NULL,
          created_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE UNIQUE INDEX master_key_active ON master_key (backend) WHERE active;

        -- A project's row is locked while an object with a quota is counted and created.
        CREATE TABLE project (
          id text PRIMARY KEY,
          created_at timestamptz NOT NULL DEFAULT now()
        );

        -- project_id is '' for the service's own keys.
        CREATE TABLE project_key (
          id uuid PRIMARY KEY,
          project_id text NOT NULL,
          backend text NOT NULL,
          active boolean NOT NULL DEFAULT true,
          wrapped bytea NOT NULL,
          master_key_id text NOT NULL REFERENCES master_key,
          created_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE UNIQUE INDEX project_key_active ON project_key (project_id, backend) WHERE active;
        CREATE INDEX project_key_master ON project_key (master_key_id);

        -- A rotation of project keys in progress: it replaces keys made before it started. Null project_id: all
        -- projects.
        CREATE TABLE key_rotation (
          id uuid PRIMARY KEY,
          project_id text UNIQUE NULLS NOT DISTINCT,
          started_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );

        CREATE TABLE secret (
          id uuid PRIMARY KEY,
          project_id text NOT NULL,
          creator_id text NOT NULL,
          name text,
          secret_type text NOT NULL DEFAULT 'opaque',
          algorithm text,
          bit_length integer,
          mode text,
          expiration timestamptz,
          content_type text,
          project_key_id uuid REFERENCES project_key,
          ciphertext bytea,
          metadata jsonb NOT NULL DEFAULT '{}',
          acl_created_at timestamptz,
          acl_updated_at timestamptz,
          acl_project_access boolean NOT NULL DEFAULT true,
          acl_users text[] NOT NULL DEFAULT '{}',
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          deleted_at timestamptz,
          CHECK ((ciphertext IS NULL) = (project_key_id IS NULL))
        );
        -- Includes expiration so that an index-only scan can count and skip live secrets.
        CREATE INDEX secret_of_project ON secret (project_id, created_at, id) INCLUDE (expiration) WHERE deleted_at IS NULL;
        CREATE INDEX secret_acl_users ON secret USING gin (acl_users) WHERE deleted_at IS NULL AND acl_users <> '{}';
        CREATE INDEX secret_project_key ON secret (project_key_id, id);
        CREATE INDEX secret_expiration ON secret (expiration) WHERE deleted_at IS NULL AND expiration IS NOT NULL;
        CREATE INDEX secret_deleted ON secret (deleted_at) WHERE deleted_at IS NOT NULL;

        CREATE TABLE container (
          id uuid PRIMARY KEY,
          project_id text NOT NULL,
          creator_id text NOT NULL,
          name text,
          type text NOT NULL,
          acl_created_at timestamptz,
          acl_updated_at timestamptz,
          acl_project_access boolean NOT NULL DEFAULT true,
          acl_users text[] NOT NULL DEFAULT '{}',
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          deleted_at timestamptz
        );
        CREATE INDEX container_of_project ON container (project_id, created_at, id) WHERE deleted_at IS NULL;
        CREATE INDEX container_deleted ON container (deleted_at) WHERE deleted_at IS NOT NULL;

        -- Only for live containers: deleting a container deletes its rows.
        CREATE TABLE container_secret (
          container_id uuid NOT NULL REFERENCES container ON DELETE CASCADE,
          secret_id uuid NOT NULL REFERENCES secret,
          name text,
          position bigint GENERATED ALWAYS AS IDENTITY,
          UNIQUE NULLS NOT DISTINCT (container_id, secret_id, name)
        );
        CREATE INDEX container_secret_secret ON container_secret (secret_id);

        CREATE TABLE secret_consumer (
          id uuid PRIMARY KEY,
          secret_id uuid NOT NULL REFERENCES secret ON DELETE CASCADE,
          project_id text NOT NULL,
          service text NOT NULL,
          resource_type text NOT NULL,
          resource_id text NOT NULL,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          UNIQUE (secret_id, service, resource_type, resource_id)
        );
        CREATE INDEX secret_consumer_project ON secret_consumer (project_id);

        CREATE TABLE container_consumer (
          id uuid PRIMARY KEY,
          container_id uuid NOT NULL REFERENCES container ON DELETE CASCADE,
          project_id text NOT NULL,
          name text NOT NULL,
          url text NOT NULL,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          UNIQUE (container_id, name, url)
        );
        CREATE INDEX container_consumer_project ON container_consumer (project_id);

        -- An order's passphrase is stored sealed, and only until the order is processed. Searching for large primes
        -- takes seconds of CPU time, so such orders have a separate lane and do not delay the others. lapsed_claims
        -- counts attempts that never reported a result: the next claim finds the order in PROCESSING.
        CREATE TABLE secret_order (
          id uuid PRIMARY KEY,
          project_id text NOT NULL,
          creator_id text NOT NULL,
          type text NOT NULL,
          meta jsonb NOT NULL,
          sealed_passphrase bytea,
          project_key_id uuid REFERENCES project_key,
          lane text NOT NULL GENERATED ALWAYS AS (
            CASE WHEN type = 'asymmetric' AND lower(meta->>'algorithm') IN ('rsa', 'dsa') THEN 'primes'
                 -- RSA is the default algorithm of a certificate order with a subject.
                 WHEN type = 'certificate' AND coalesce(nullif(lower(meta->>'algorithm'), ''), 'rsa') = 'rsa'
                      AND coalesce(meta->>'subject_dn', '') <> ''
                      AND coalesce(meta->>'container_ref', '') = '' AND coalesce(meta->>'request_data', '') = '' THEN 'primes'
                 ELSE 'quick' END) STORED,
          status text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'ACTIVE', 'ERROR')),
          sub_status text,
          sub_status_message text,
          error_status_code text,
          error_reason text,
          secret_id uuid REFERENCES secret,
          container_id uuid REFERENCES container,
          retry_at timestamptz,
          retries integer NOT NULL DEFAULT 0,
          lapsed_claims integer NOT NULL DEFAULT 0,
          lease_owner text,
          lease_until timestamptz,
          fence bigint NOT NULL DEFAULT 0,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          deleted_at timestamptz
        );
        CREATE INDEX secret_order_of_project ON secret_order (project_id, created_at, id) WHERE deleted_at IS NULL;
        CREATE INDEX secret_order_due ON secret_order (lane, project_id, created_at, id)
          WHERE status IN ('PENDING', 'PROCESSING') AND deleted_at IS NULL;
        CREATE INDEX secret_order_suspect ON secret_order (lapsed_claims)
          WHERE status IN ('PENDING', 'PROCESSING') AND deleted_at IS NULL AND (lapsed_claims > 0 OR status = 'PROCESSING');
        CREATE INDEX secret_order_retry ON secret_order (retry_at)
          WHERE status IN ('PENDING', 'PROCESSING') AND deleted_at IS NULL AND retry_at IS NOT NULL;
        CREATE INDEX secret_order_project_key ON secret_order (project_key_id, id) WHERE project_key_id IS NOT NULL;
        CREATE INDEX secret_order_secret ON secret_order (secret_id);
        CREATE INDEX secret_order_container ON secret_order (container_id);
        CREATE INDEX secret_order_deleted ON secret_order (deleted_at) WHERE deleted_at IS NOT NULL;

        -- Null means the default quota, a negative number no limit.
        CREATE TABLE project_quota (
          project_id text PRIMARY KEY,
          secrets integer,
          orders integer,
          containers integer,
          consumers integer,
          cas integer,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );

        CREATE TABLE secret_store (
          id uuid PRIMARY KEY,
          name text NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED,
          secret_store_plugin text NOT NULL,
          crypto_plugin text NOT NULL UNIQUE,
          global_default boolean NOT NULL,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE TABLE project_secret_store (
          project_id text PRIMARY KEY,
          secret_store_id uuid NOT NULL REFERENCES secret_store,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );

        CREATE TABLE transport_key (
          id uuid PRIMARY KEY,
          plugin_name text NOT NULL,
          transport_key text NOT NULL,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );

        -- project_id is null for CAs that every project may use. The key is sealed like a secret. chain runs from
        -- the CA's own certificate to the root's; pkcs7 holds the same. If crl is null, the next reader creates it.
        CREATE TABLE certificate_authority (
          id uuid PRIMARY KEY,
          project_id text,
          creator_id text,
          parent_id uuid REFERENCES certificate_authority,
          plugin_name text NOT NULL,
          plugin_ca_id text NOT NULL,
          name text NOT NULL,
          description text,
          subject_dn text NOT NULL,
          certificate text NOT NULL,
          serial text NOT NULL,
          chain text NOT NULL,
          pkcs7 text NOT NULL,
          project_key_id uuid REFERENCES project_key,
          sealed_key bytea,
          crl bytea,
          crl_number bigint NOT NULL DEFAULT 0,
          crl_made_at timestamptz,
          global_preferred boolean NOT NULL DEFAULT false,
          expiration timestamptz,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          UNIQUE (plugin_name, plugin_ca_id),
          CHECK ((sealed_key IS NULL) = (project_key_id IS NULL))
        );
        CREATE UNIQUE INDEX certificate_authority_preferred ON certificate_authority (global_preferred) WHERE global_preferred;
        CREATE INDEX certificate_authority_key ON certificate_authority (project_key_id, id);
        CREATE INDEX certificate_authority_project ON certificate_authority (project_id, created_at, id);
        CREATE INDEX certificate_authority_parent ON certificate_authority (parent_id);

        CREATE TABLE project_certificate_authority (
          project_id text NOT NULL,
          ca_id uuid NOT NULL REFERENCES certificate_authority ON DELETE CASCADE,
          preferred boolean NOT NULL DEFAULT false,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          PRIMARY KEY (project_id, ca_id)
        );
        CREATE UNIQUE INDEX project_certificate_authority_preferred ON project_certificate_authority (project_id) WHERE preferred;
        CREATE INDEX project_certificate_authority_ca ON project_certificate_authority (ca_id);

        CREATE TABLE issued_certificate (
          ca_id uuid NOT NULL REFERENCES certificate_authority ON DELETE CASCADE,
          serial text NOT NULL,
          subject_dn text NOT NULL,
          not_after timestamptz NOT NULL,
          order_id uuid,
          issued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          revoked_at timestamptz,
          revocation_reason text,
          PRIMARY KEY (ca_id, serial)
        );

        -- Who did what. Rows are append-only: position and hash are set once, later, to link them. Only retention
        -- removes rows.
        CREATE TABLE audit_record (
          seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
          at timestamptz NOT NULL DEFAULT clock_timestamp(),
          action text NOT NULL,
          outcome text NOT NULL,
          user_id text,
          project_id text,
          request_id text,
          remote_address text,
          target_type text NOT NULL,
          target_id text,
          detail jsonb,
          position bigint UNIQUE,
          hash bytea,
          CHECK ((position IS NULL) = (hash IS NULL))
        );
        CREATE INDEX audit_record_unlinked ON audit_record (seq) WHERE position IS NULL;

        -- The last record that retention removed, with a MAC that the database cannot compute. at is the time of
        -- the record.
        CREATE TABLE audit_anchor (
          id boolean PRIMARY KEY DEFAULT true CHECK (id),
          position bigint NOT NULL,
          hash bytea NOT NULL,
          at timestamptz NOT NULL,
          cutoff timestamptz NOT NULL,
          mac bytea NOT NULL
        );

        -- An intruder with the service's role cannot remove the traces: only the oldest records can be removed, and
        -- none younger than 30 days. The chain exposes an intruder who can drop this protection.
        CREATE FUNCTION removable_audit(at timestamptz) RETURNS boolean STABLE LANGUAGE sql AS $$
          SELECT at < now() - interval '30 days'
        $$;

        CREATE FUNCTION refuse_rewriting_audit() RETURNS trigger LANGUAGE plpgsql AS $$
          BEGIN
            IF TG_OP = 'UPDATE' AND OLD.position IS NULL
               AND (to_jsonb(NEW) - 'position' - 'hash') = (to_jsonb(OLD) - 'position' - 'hash') THEN
              RETURN NEW;
            END IF;
            IF TG_OP = 'DELETE' AND removable_audit(OLD.at) AND OLD.position <= (SELECT a.position FROM audit_anchor a) THEN
              RETURN OLD;
            END IF;
            RAISE EXCEPTION 'audit records are only ever added';
          END
        $$;
        CREATE TRIGGER audit_record_rows BEFORE UPDATE OR DELETE ON audit_record
          FOR EACH ROW EXECUTE FUNCTION refuse_rewriting_audit();
        CREATE TRIGGER audit_record_table BEFORE TRUNCATE ON audit_record
          FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting_audit();

        CREATE FUNCTION refuse_moving_audit_anchor() RETURNS trigger LANGUAGE plpgsql AS $$
          BEGIN
            IF TG_OP = 'INSERT' OR TG_OP = 'UPDATE' AND NEW.position > OLD.position THEN
              IF EXISTS (SELECT FROM audit_record r WHERE r.position = NEW.position AND r.hash = NEW.hash AND r.at = NEW.at
                           AND removable_audit(r.at)) THEN
                RETURN NEW;
              END IF;
            END IF;
            RAISE EXCEPTION 'the audit log goes on from an old record only, and never from one before';
          END
        $$;
        CREATE TRIGGER audit_anchor_rows BEFORE INSERT OR UPDATE OR DELETE ON audit_anchor
          FOR EACH ROW EXECUTE FUNCTION refuse_moving_audit_anchor();
        CREATE TRIGGER audit_anchor_table BEFORE TRUNCATE ON audit_anchor
          FOR EACH STATEMENT EXECUTE FUNCTION refuse_moving_audit_anchor();

        -- Live objects of one kind in a project.
        CREATE FUNCTION quota_used(project text, kind text) RETURNS bigint STABLE LANGUAGE sql AS $$
          SELECT CASE kind
            WHEN 'secrets' THEN (SELECT count(*) FROM secret WHERE project_id = project AND deleted_at IS NULL
                                   AND (expiration IS NULL OR expiration > now()))
            WHEN 'orders' THEN (SELECT count(*) FROM secret_order WHERE project_id = project AND deleted_at IS NULL)
            WHEN 'containers' THEN (SELECT count(*) FROM container WHERE project_id = project AND deleted_at IS NULL)
            WHEN 'secret consumers' THEN (SELECT count(*) FROM secret_consumer WHERE project_id = project)
            WHEN 'container consumers' THEN (SELECT count(*) FROM container_consumer WHERE project_id = project)
            WHEN 'cas' THEN (SELECT count(*) FROM certificate_authority WHERE project_id = project)
          END
        $$;

        -- Whether one more object fits. With a quota, creates of one project are serialised from here to the end of
        -- the transaction, so that the count is exact: each statement of a volatile function sees what was
        -- committed before it.
        CREATE FUNCTION quota_allows(project_of text, kind text, by_default integer) RETURNS boolean
        VOLATILE LANGUAGE plpgsql AS $$
          DECLARE most integer;
          BEGIN
            SELECT CASE kind WHEN 'secrets' THEN q.secrets WHEN 'orders' THEN q.orders WHEN 'containers' THEN q.containers
                             WHEN 'cas' THEN q.cas ELSE q.consumers END
              INTO most FROM project_quota q WHERE q.project_id = project_of;
            most := coalesce(most, by_default);
            IF most < 0 THEN RETURN true; END IF;
            IF most = 0 THEN RETURN false; END IF;
            INSERT INTO project (id) VALUES (project_of) ON CONFLICT DO NOTHING;
            PERFORM 1 FROM project p WHERE p.id = project_of FOR UPDATE;
            RETURN quota_used(project_of, kind) < most;
          END
        $$`)
  },
}
