import type { Migration } from '../../database/migrate.js'

/** L7, TLS references, quotas, flavors, availability zones, failover, events and idempotent requests. */
export const wholeApi: Migration = {
  name: '002-whole-api',
  up: async trx => {
    await trx.raw(`
      CREATE TABLE flavor_profile (
        id uuid PRIMARY KEY,
        name text NOT NULL,
        provider_name text NOT NULL,
        -- text of a JSON object, as given
        flavor_data text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp()
      );

      CREATE TABLE flavor (
        id uuid PRIMARY KEY,
        name text NOT NULL UNIQUE,
        description text NOT NULL DEFAULT '',
        enabled boolean NOT NULL DEFAULT true,
        flavor_profile_id uuid NOT NULL REFERENCES flavor_profile,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp()
      );
      CREATE INDEX flavor_of_profile ON flavor (flavor_profile_id);

      CREATE TABLE availability_zone_profile (
        id uuid PRIMARY KEY,
        name text NOT NULL,
        provider_name text NOT NULL,
        availability_zone_data text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp()
      );

      CREATE TABLE availability_zone (
        name text PRIMARY KEY,
        description text NOT NULL DEFAULT '',
        enabled boolean NOT NULL DEFAULT true,
        availability_zone_profile_id uuid NOT NULL REFERENCES availability_zone_profile,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp()
      );
      CREATE INDEX availability_zone_of_profile ON availability_zone (availability_zone_profile_id);

      ALTER TABLE load_balancer
        ADD COLUMN flavor_id uuid REFERENCES flavor,
        ADD COLUMN availability_zone text REFERENCES availability_zone,
        ADD COLUMN vip_sg_ids uuid[] NOT NULL DEFAULT '{}',
        ADD COLUMN vip_vnic_type text NOT NULL DEFAULT 'normal',
        -- [{"subnet_id", "ip_address", "port_id"}], in the order of the request
        ADD COLUMN additional_vips jsonb NOT NULL DEFAULT '[]';
      CREATE INDEX load_balancer_flavor ON load_balancer (flavor_id);
      CREATE INDEX load_balancer_availability_zone ON load_balancer (availability_zone);

      ALTER TABLE listener
        ADD COLUMN default_tls_container_ref text,
        ADD COLUMN sni_container_refs text[] NOT NULL DEFAULT '{}',
        ADD COLUMN client_authentication text NOT NULL DEFAULT 'NONE',
        ADD COLUMN client_ca_tls_container_ref text,
        ADD COLUMN client_crl_container_ref text,
        ADD COLUMN tls_ciphers text,
        ADD COLUMN tls_versions text[],
        ADD COLUMN alpn_protocols text[],
        ADD COLUMN hsts_max_age integer,
        ADD COLUMN hsts_include_subdomains boolean NOT NULL DEFAULT false,
        ADD COLUMN hsts_preload boolean NOT NULL DEFAULT false;

      ALTER TABLE pool
        ADD COLUMN tls_enabled boolean NOT NULL DEFAULT false,
        ADD COLUMN tls_container_ref text,
        ADD COLUMN ca_tls_container_ref text,
        ADD COLUMN crl_container_ref text,
        ADD COLUMN tls_ciphers text,
        ADD COLUMN tls_versions text[],
        ADD COLUMN alpn_protocols text[];

      ALTER TABLE member ADD COLUMN vnic_type text NOT NULL DEFAULT 'normal';

      -- For pages over all projects.
      CREATE INDEX listener_page_all ON listener (created_at, id);
      CREATE INDEX pool_page_all ON pool (created_at, id);
      CREATE INDEX health_monitor_page_all ON health_monitor (created_at, id);
      CREATE INDEX amphora_page_all ON amphora (created_at, id);

      CREATE TABLE l7_policy (
        id uuid PRIMARY KEY,
        load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
        listener_id uuid NOT NULL REFERENCES listener ON DELETE CASCADE,
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        admin_state_up boolean NOT NULL DEFAULT true,
        action text NOT NULL,
        redirect_pool_id uuid REFERENCES pool ON DELETE SET NULL,
        redirect_url text,
        redirect_prefix text,
        redirect_http_code integer,
        -- 1..n without gaps among a listener's policies that are not under deletion
        position integer NOT NULL,
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        updated_at timestamptz,
        generation bigint NOT NULL,
        change text NOT NULL DEFAULT 'create' CHECK (change IN ('create', 'update', 'delete'))
      );
      CREATE INDEX l7_policy_load_balancer ON l7_policy (load_balancer_id);
      CREATE INDEX l7_policy_listener ON l7_policy (listener_id, position);
      CREATE INDEX l7_policy_redirect_pool ON l7_policy (redirect_pool_id);
      CREATE INDEX l7_policy_page ON l7_policy (project_id, created_at, id);
      CREATE INDEX l7_policy_page_all ON l7_policy (created_at, id);

      CREATE TABLE l7_rule (
        id uuid PRIMARY KEY,
        load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
        l7_policy_id uuid NOT NULL REFERENCES l7_policy ON DELETE CASCADE,
        project_id text NOT NULL,
        type text NOT NULL,
        compare_type text NOT NULL,
        key text,
        value text NOT NULL,
        invert boolean NOT NULL DEFAULT false,
        admin_state_up boolean NOT NULL DEFAULT true,
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        updated_at timestamptz,
        generation bigint NOT NULL,
        change text NOT NULL DEFAULT 'create' CHECK (change IN ('create', 'update', 'delete'))
      );
      CREATE INDEX l7_rule_load_balancer ON l7_rule (load_balancer_id);
      CREATE INDEX l7_rule_page ON l7_rule (l7_policy_id, created_at, id);

      -- Limits of a project; null means the configured default. Creates of a project queue for the lock of its row.
      CREATE TABLE quota (
        project_id text PRIMARY KEY,
        loadbalancer integer,
        listener integer,
        pool integer,
        member integer,
        healthmonitor integer,
        l7policy integer,
        l7rule integer,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp()
      );

      -- Number of objects of a kind in a project. Objects under deletion or in ERROR count until their row is deleted.
      CREATE FUNCTION quota_in_use(project text, resource text) RETURNS bigint STABLE LANGUAGE sql AS $$
        SELECT CASE resource
          WHEN 'loadbalancer' THEN (SELECT count(*) FROM load_balancer WHERE project_id = project)
          WHEN 'listener' THEN (SELECT count(*) FROM load_balancer b JOIN listener o ON o.load_balancer_id = b.id WHERE b.project_id = project)
          WHEN 'pool' THEN (SELECT count(*) FROM load_balancer b JOIN pool o ON o.load_balancer_id = b.id WHERE b.project_id = project)
          WHEN 'member' THEN (SELECT count(*) FROM load_balancer b JOIN member o ON o.load_balancer_id = b.id WHERE b.project_id = project)
          WHEN 'healthmonitor' THEN (SELECT count(*) FROM load_balancer b JOIN health_monitor o ON o.load_balancer_id = b.id WHERE b.project_id = project)
          WHEN 'l7policy' THEN (SELECT count(*) FROM load_balancer b JOIN l7_policy o ON o.load_balancer_id = b.id WHERE b.project_id = project)
          WHEN 'l7rule' THEN (SELECT count(*) FROM load_balancer b JOIN l7_rule o ON o.load_balancer_id = b.id WHERE b.project_id = project)
        END
      $$;

      -- The same under the lock of the project's quota row, which is created if missing. Each statement of a volatile
      -- function sees what was committed before it starts, so the count includes the objects of all earlier lock holders.
      CREATE FUNCTION held_quota_in_use(project text, resource text) RETURNS bigint VOLATILE LANGUAGE plpgsql AS $$
        BEGIN
          PERFORM set_config('lock_timeout', '5s', true);
          INSERT INTO quota (project_id) VALUES (project) ON CONFLICT DO NOTHING;
          PERFORM FROM quota WHERE project_id = project FOR UPDATE;
          RETURN quota_in_use(project, resource);
        END
      $$;

      -- Totals since the pool was created, like listener_statistics; one row per pool, listener and amphora.
      CREATE TABLE pool_statistics (
        pool_id uuid NOT NULL REFERENCES pool ON DELETE CASCADE,
        listener_id uuid NOT NULL,
        amphora_id uuid NOT NULL,
        epoch text NOT NULL,
        sent_ms bigint NOT NULL DEFAULT 0,
        base_bytes_in bigint NOT NULL DEFAULT 0,
        base_bytes_out bigint NOT NULL DEFAULT 0,
        base_total_connections bigint NOT NULL DEFAULT 0,
        base_request_errors bigint NOT NULL DEFAULT 0,
        bytes_in bigint NOT NULL DEFAULT 0,
        bytes_out bigint NOT NULL DEFAULT 0,
        active_connections bigint NOT NULL DEFAULT 0,
        total_connections bigint NOT NULL DEFAULT 0,
        request_errors bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (pool_id, listener_id, amphora_id)
      );

      -- Set when a failover replaces the amphora, which serves until another has its role.
      ALTER TABLE amphora ADD COLUMN replace_generation bigint;
      -- At most one successor per role.
      CREATE UNIQUE INDEX amphora_role ON amphora (load_balancer_id, role)
       WHERE replace_generation IS NULL AND status <> 'PENDING_DELETE';

      -- Requests for changes, and their results; deleted with the load balancer.
      CREATE TABLE load_balancer_event (
        id uuid NOT NULL DEFAULT gen_random_uuid(),
        load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        -- number of consecutive identical events, and the time of the latest
        count integer NOT NULL DEFAULT 1,
        updated_at timestamptz,
        generation bigint NOT NULL,
        kind text NOT NULL CHECK (kind IN ('requested', 'applied', 'failed')),
        detail jsonb NOT NULL,
        PRIMARY KEY (load_balancer_id, created_at, id)
      );
      CREATE INDEX load_balancer_event_age ON load_balancer_event USING brin (created_at);

      -- Responses to creates with an Idempotency-Key; deleted after a day.
      CREATE TABLE repeated_request (
        project_id text NOT NULL,
        user_id text NOT NULL,
        key text NOT NULL,
        -- SHA-256 of method, path and body
        request_sha256 text NOT NULL,
        status integer NOT NULL,
        body text,
        created_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (project_id, user_id, key)
      );
      CREATE INDEX repeated_request_age ON repeated_request (created_at);
    `)
  },
}
