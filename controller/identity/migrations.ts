import type { Migration } from '../database/migrate.js'

export const migrations: readonly Migration[] = [
  {
    name: '001-first-tables',
    up: async trx => {
      await trx.raw(`
        CREATE TABLE domain (
          id text PRIMARY KEY,
          name text NOT NULL UNIQUE,
          description text NOT NULL DEFAULT '',
          enabled boolean NOT NULL DEFAULT true,
          tags text[] NOT NULL DEFAULT '{}',
          options jsonb NOT NULL DEFAULT '{}',
          -- attributes beyond the known ones; like Keystone, Krater stores and returns them
          extra jsonb NOT NULL DEFAULT '{}'
        );

        CREATE TABLE project (
          id text PRIMARY KEY,
          domain_id text NOT NULL REFERENCES domain ON DELETE CASCADE,
          -- null means that the domain is the parent
          parent_id text REFERENCES project ON DELETE CASCADE,
          name text NOT NULL,
          description text NOT NULL DEFAULT '',
          enabled boolean NOT NULL DEFAULT true,
          tags text[] NOT NULL DEFAULT '{}',
          options jsonb NOT NULL DEFAULT '{}',
          extra jsonb NOT NULL DEFAULT '{}',
          UNIQUE (domain_id, name)
        );
        CREATE INDEX project_parent ON project (parent_id);

        CREATE TABLE local_user (
          id text PRIMARY KEY,
          domain_id text NOT NULL REFERENCES domain ON DELETE CASCADE,
          name text NOT NULL,
          enabled boolean NOT NULL DEFAULT true,
          default_project_id text REFERENCES project ON DELETE SET NULL,
          -- null means that the user cannot log in with a password
          password_hash text,
          options jsonb NOT NULL DEFAULT '{}',
          extra jsonb NOT NULL DEFAULT '{}',
          UNIQUE (domain_id, name)
        );
        CREATE INDEX local_user_default_project ON local_user (default_project_id);

        CREATE TABLE user_group (
          id text PRIMARY KEY,
          domain_id text NOT NULL REFERENCES domain ON DELETE CASCADE,
          name text NOT NULL,
          description text NOT NULL DEFAULT '',
          extra jsonb NOT NULL DEFAULT '{}',
          UNIQUE (domain_id, name)
        );

        CREATE TABLE group_member (
          group_id text NOT NULL REFERENCES user_group ON DELETE CASCADE,
          user_id text NOT NULL REFERENCES local_user ON DELETE CASCADE,
          PRIMARY KEY (group_id, user_id)
        );
        CREATE INDEX group_member_user ON group_member (user_id);

        CREATE TABLE role (
          id text PRIMARY KEY,
          name text NOT NULL UNIQUE,
          description text,
          options jsonb NOT NULL DEFAULT '{}',
          extra jsonb NOT NULL DEFAULT '{}'
        );

        CREATE TABLE implied_role (
          prior_role_id text NOT NULL REFERENCES role ON DELETE CASCADE,
          implied_role_id text NOT NULL REFERENCES role ON DELETE CASCADE,
          PRIMARY KEY (prior_role_id, implied_role_id),
          CHECK (prior_role_id <> implied_role_id)
        );

        -- Roles of users or groups on a project, a domain or, if both are null, the system.
        CREATE TABLE assignment (
          role_id text NOT NULL REFERENCES role ON DELETE CASCADE,
          user_id text REFERENCES local_user ON DELETE CASCADE,
          group_id text REFERENCES user_group ON DELETE CASCADE,
          project_id text REFERENCES project ON DELETE CASCADE,
          domain_id text REFERENCES domain ON DELETE CASCADE,
          CHECK (num_nonnulls(user_id, group_id) = 1),
          CHECK (num_nonnulls(project_id, domain_id) <= 1),
          UNIQUE NULLS NOT DISTINCT (user_id, group_id, project_id, domain_id, role_id)
        );
        CREATE INDEX assignment_group ON assignment (group_id);
        CREATE INDEX assignment_project ON assignment (project_id);
        CREATE INDEX assignment_domain ON assignment (domain_id);
        CREATE INDEX assignment_role ON assignment (role_id);

        CREATE TABLE service (
          id text PRIMARY KEY,
          type text NOT NULL,
          name text,
          description text,
          enabled boolean NOT NULL DEFAULT true,
          extra jsonb NOT NULL DEFAULT '{}'
        );

        CREATE TABLE region (
          id text PRIMARY KEY,
          description text NOT NULL DEFAULT '',
          parent_region_id text REFERENCES region ON DELETE CASCADE,
          extra jsonb NOT NULL DEFAULT '{}'
        );

        CREATE TABLE endpoint (
          id text PRIMARY KEY,
          service_id text NOT NULL REFERENCES service ON DELETE CASCADE,
          region_id text REFERENCES region,
          interface text NOT NULL CHECK (interface IN ('public', 'internal', 'admin')),
          url text NOT NULL,
          enabled boolean NOT NULL DEFAULT true,
          extra jsonb NOT NULL DEFAULT '{}'
        );
        CREATE INDEX endpoint_service ON endpoint (service_id);

        CREATE TABLE credential (
          id text PRIMARY KEY,
          user_id text NOT NULL REFERENCES local_user ON DELETE CASCADE,
          project_id text REFERENCES project ON DELETE CASCADE,
          type text NOT NULL,
          -- AES-256-GCM under a key that the database never sees
          sealed_blob bytea NOT NULL,
          extra jsonb NOT NULL DEFAULT '{}'
        );
        CREATE INDEX credential_user ON credential (user_id);

        CREATE TABLE application_credential (
          id text PRIMARY KEY,
          user_id text NOT NULL REFERENCES local_user ON DELETE CASCADE,
          project_id text NOT NULL REFERENCES project ON DELETE CASCADE,
          name text NOT NULL,
          description text,
          secret_hash text NOT NULL,
          expires_at timestamptz,
          unrestricted boolean NOT NULL DEFAULT false,
          access_rules jsonb,
          UNIQUE (user_id, name)
        );
        CREATE INDEX application_credential_project ON application_credential (project_id);

        CREATE TABLE application_credential_role (
          application_credential_id text NOT NULL REFERENCES application_credential ON DELETE CASCADE,
          role_id text NOT NULL REFERENCES role ON DELETE CASCADE,
          PRIMARY KEY (application_credential_id, role_id)
        );

        -- Revoking a token, or a right that it depends on, deletes its row.
        CREATE TABLE token (
          sha256 bytea PRIMARY KEY,
          user_id text NOT NULL REFERENCES local_user ON DELETE CASCADE,
          -- the scope; if both are null, unscoped or the system
          project_id text REFERENCES project ON DELETE CASCADE,
          domain_id text REFERENCES domain ON DELETE CASCADE,
          application_credential_id text REFERENCES application_credential ON DELETE CASCADE,
          -- the complete token document, without the catalogue
          document jsonb NOT NULL,
          expires_at timestamptz NOT NULL
        );
        CREATE INDEX token_user ON token (user_id);
        CREATE INDEX token_project ON token (project_id);
        CREATE INDEX token_domain ON token (domain_id);
        CREATE INDEX token_application_credential ON token (application_credential_id);
        CREATE INDEX token_expiry ON token (expires_at);

        -- What the first start created; never created again, even if an operator has removed it.
        CREATE TABLE made_once (what text PRIMARY KEY);
      `)
    },
  },
  {
    name: '002-deleted-projects',
    up: async trx => {
      await trx.raw(`
        -- Deleted projects whose objects other services have yet to remove. A worker claims a row to process it.
        CREATE TABLE deleted_project (
          id text PRIMARY KEY,
          deleted_at timestamptz NOT NULL DEFAULT now(),
          due_at timestamptz NOT NULL DEFAULT now(),
          failures integer NOT NULL DEFAULT 0,
          lease_owner text,
          lease_until timestamptz,
          fence bigint NOT NULL DEFAULT 0
        );
        CREATE INDEX deleted_project_due ON deleted_project (due_at);

        -- In the transaction that deletes the project: a request, the deletion of its domain or parent, or manual SQL.
        CREATE FUNCTION note_deleted_project() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
          BEGIN
            INSERT INTO deleted_project (id) VALUES (OLD.id)
              ON CONFLICT (id) DO UPDATE SET deleted_at = now(), due_at = now(), failures = 0;
            PERFORM pg_notify('krater_deleted_projects', '');
            RETURN NULL;
          END
        $$;
        CREATE TRIGGER project_deleted AFTER DELETE ON project FOR EACH ROW EXECUTE FUNCTION note_deleted_project();
      `)
    },
  },
  {
    name: '003-domain-roles',
    up: async trx => {
      await trx.raw(`
        -- The domain of a role that can be assigned only there; null for all other roles.
        ALTER TABLE role ADD COLUMN domain_id text REFERENCES domain ON DELETE CASCADE;
        ALTER TABLE role DROP CONSTRAINT role_name_key;
        ALTER TABLE role ADD CONSTRAINT role_name UNIQUE NULLS NOT DISTINCT (domain_id, name);
      `)
    },
  },
]
