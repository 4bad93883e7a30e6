import type { Migration } from '../../database/migrate.js'

/** Certificates that orders issued, with their renewals. */
export const renewals: Migration = {
  name: '004-renewals',
  up: async trx => {
    await trx.raw(`
        -- Counts the replacements of a container's parts, from 1.
        ALTER TABLE container ADD COLUMN version integer NOT NULL DEFAULT 1;

        -- The certificate in the container that an order created; id is the container's. meta is the order's. checked_at
        -- is when the creator's rights to the key were last checked. renew_at is the planned renewal, asked_at set when
        -- somebody asked for one. No attempt is made before retry_at (our own back-off) and hold_until (the CA's wish).
        -- window_start and window_end are the CA's renewal information, which is read again at info_at. noticed_days is
        -- the last notice given before the expiry. due_at is when anything has to be done next.
        -- lapsed_claims counts attempts that never reported a result: the next claim finds the row under_way.
        CREATE TABLE certificate (
          id uuid PRIMARY KEY REFERENCES container ON DELETE CASCADE,
          project_id text NOT NULL,
          creator_id text NOT NULL,
          order_id uuid NOT NULL UNIQUE,
          meta jsonb NOT NULL,
          renew boolean NOT NULL,
          new_key boolean NOT NULL,
          ca_id uuid NOT NULL,
          serial text NOT NULL,
          issuer text NOT NULL,
          names text[] NOT NULL,
          pem text,
          not_before timestamptz NOT NULL,
          not_after timestamptz NOT NULL,
          checked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          renew_at timestamptz,
          asked_at timestamptz,
          window_start timestamptz,
          window_end timestamptz,
          info_at timestamptz,
          attempts integer NOT NULL DEFAULT 0,
          attempted_at timestamptz,
          last_error text,
          retry_at timestamptz,
          hold_until timestamptz,
          noticed_days integer,
          due_at timestamptz DEFAULT clock_timestamp(),
          under_way boolean NOT NULL DEFAULT false,
          lapsed_claims integer NOT NULL DEFAULT 0,
          lease_owner text,
          lease_until timestamptz,
          fence bigint NOT NULL DEFAULT 0
        );
        CREATE INDEX certificate_of_project ON certificate (project_id, not_after, id);
        CREATE INDEX certificate_due ON certificate (project_id, due_at, id) WHERE due_at IS NOT NULL;
        CREATE INDEX certificate_due_at ON certificate (due_at) WHERE due_at IS NOT NULL;
        CREATE INDEX certificate_leased ON certificate (project_id) WHERE under_way;

        -- The parts that the last replacement took out, for a rollback: a list of names and ids of secrets.
        CREATE TABLE certificate_version (
          container_id uuid NOT NULL REFERENCES certificate ON DELETE CASCADE,
          version integer NOT NULL,
          ca_id uuid NOT NULL,
          serial text NOT NULL,
          issuer text NOT NULL,
          names text[] NOT NULL,
          pem text,
          not_before timestamptz NOT NULL,
          not_after timestamptz NOT NULL,
          parts jsonb NOT NULL,
          replaced_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          PRIMARY KEY (container_id, version)
        );

        CREATE TABLE certificate_event (
          id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
          container_id uuid NOT NULL REFERENCES certificate ON DELETE CASCADE,
          at timestamptz NOT NULL DEFAULT clock_timestamp(),
          kind text NOT NULL,
          version integer NOT NULL,
          days_left integer NOT NULL,
          message text NOT NULL
        );
        CREATE INDEX certificate_event_container ON certificate_event (container_id, id);

        -- Certificates of earlier orders are listed and noticed, but not renewed: nobody asked for that.
        INSERT INTO certificate (id, project_id, creator_id, order_id, meta, renew, new_key, ca_id, serial, issuer, names,
                                 not_before, not_after)
        SELECT DISTINCT ON (o.container_id) o.container_id, o.project_id, o.creator_id, o.id, o.meta, false, false, i.ca_id,
               i.serial, coalesce(a.subject_dn, ''), '{}', i.issued_at, i.not_after
          FROM secret_order o JOIN issued_certificate i ON i.order_id = o.id
          JOIN container c ON c.id = o.container_id AND c.deleted_at IS NULL
          LEFT JOIN certificate_authority a ON a.id = i.ca_id
         WHERE o.type = 'certificate';`)
  },
}
