import type { Migration } from '../../database/migrate.js'

/**
 * The tables of the load balancer service.
 *
 * A tenant's object stores the generation and the kind of its last change. Its load balancer stores the newest
 * generation, the applied generation, and the fault of the last attempt. provisioning_status is derived from
 * these and never stored (status.ts). A deleted object keeps its row with change = 'delete' until its
 * generation is applied. created_at is the clock time, not the start of the transaction, so that objects of one
 * request keep their order.
 */
export const loadBalancers: Migration = {
  name: '001-load-balancers',
  up: async trx => {
    await trx.raw(`
        -- For load balancers. A fault of the newest generation means ERROR, applied or not (an amphora may die later).
        CREATE FUNCTION provisioning_status(generation bigint, change text, applied_generation bigint, fault_generation bigint)
        RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
          SELECT CASE
            WHEN fault_generation >= generation THEN 'ERROR'
            WHEN generation > applied_generation OR change = 'delete' THEN 'PENDING_' || upper(change)
            ELSE 'ACTIVE'
          END
        $$;

        -- For objects below a load balancer. An applied object stays ACTIVE, whatever the load balancer's status.
        CREATE FUNCTION child_provisioning_status(
          generation bigint, change text, newest_generation bigint, applied_generation bigint, fault_generation bigint)
        RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
          SELECT CASE
            WHEN generation <= applied_generation AND change <> 'delete' THEN 'ACTIVE'
            WHEN fault_generation >= newest_generation THEN 'ERROR'
            ELSE 'PENDING_' || upper(change)
          END
        $$;

        CREATE TABLE load_balancer (
          id uuid PRIMARY KEY,
          project_id text NOT NULL,
          name text NOT NULL DEFAULT '',
          description text NOT NULL DEFAULT '',
          admin_state_up boolean NOT NULL DEFAULT true,
          provider text NOT NULL,
          topology text NOT NULL CHECK (topology IN ('SINGLE', 'ACTIVE_STANDBY')),
          vip_address text NOT NULL,
          vip_subnet_id uuid,
          vip_network_id uuid,
          vip_port_id uuid,
          owns_vip_port boolean NOT NULL,
          vip_qos_policy_id uuid,
          tags text[] NOT NULL DEFAULT '{}',
          operating_status text NOT NULL DEFAULT 'OFFLINE',
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz,
          generation bigint NOT NULL DEFAULT 1,
          change text NOT NULL DEFAULT 'create' CHECK (change IN ('create', 'update', 'delete')),
          applied_generation bigint NOT NULL DEFAULT 0,
          -- why the last attempt failed, for the owner: {"code", "text"}; since when, and when to retry
          fault jsonb,
          fault_generation bigint,
          fault_since timestamptz,
          attempts integer NOT NULL DEFAULT 0,
          retry_at timestamptz,
          -- when to check the amphorae without a change (drift, silence, restart); null if none is due
          recheck_at timestamptz,
          lease_owner text,
          lease_until timestamptz,
          fence bigint NOT NULL DEFAULT 0
        );
        CREATE INDEX load_balancer_page ON load_balancer (project_id, created_at, id);
        CREATE INDEX load_balancer_page_all ON load_balancer (created_at, id);
        CREATE INDEX load_balancer_due ON load_balancer (id) WHERE generation > applied_generation OR recheck_at IS NOT NULL;
        CREATE INDEX load_balancer_vip_port ON load_balancer (vip_port_id);

        CREATE TABLE pool (
          id uuid PRIMARY KEY,
          load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
          project_id text NOT NULL,
          name text NOT NULL DEFAULT '',
          description text NOT NULL DEFAULT '',
          admin_state_up boolean NOT NULL DEFAULT true,
          protocol text NOT NULL,
          lb_algorithm text NOT NULL,
          session_persistence jsonb,
          tags text[] NOT NULL DEFAULT '{}',
          operating_status text NOT NULL DEFAULT 'OFFLINE',
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz,
          generation bigint NOT NULL,
          change text NOT NULL DEFAULT 'create' CHECK (change IN ('create', 'update', 'delete'))
        );
        CREATE INDEX pool_load_balancer ON pool (load_balancer_id);
        CREATE INDEX pool_page ON pool (project_id, created_at, id);

        CREATE TABLE listener (
          id uuid PRIMARY KEY,
          load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
          project_id text NOT NULL,
          name text NOT NULL DEFAULT '',
          description text NOT NULL DEFAULT '',
          admin_state_up boolean NOT NULL DEFAULT true,
          protocol text NOT NULL,
          -- transport protocol of the port: tcp, udp or sctp
          transport text NOT NULL,
          protocol_port integer NOT NULL,
          connection_limit integer NOT NULL DEFAULT -1,
          default_pool_id uuid REFERENCES pool ON DELETE SET NULL,
          insert_headers jsonb NOT NULL DEFAULT '{}',
          allowed_cidrs text[],
          timeout_client_data integer NOT NULL DEFAULT 50000,
          timeout_member_connect integer NOT NULL DEFAULT 5000,
          timeout_member_data integer NOT NULL DEFAULT 50000,
          timeout_tcp_inspect integer NOT NULL DEFAULT 0,
          tags text[] NOT NULL DEFAULT '{}',
          operating_status text NOT NULL DEFAULT 'OFFLINE',
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz,
          generation bigint NOT NULL,
          change text NOT NULL DEFAULT 'create' CHECK (change IN ('create', 'update', 'delete'))
        );
        CREATE INDEX listener_load_balancer ON listener (load_balancer_id);
        CREATE INDEX listener_default_pool ON listener (default_pool_id);
        CREATE INDEX listener_page ON listener (project_id, created_at, id);
        CREATE UNIQUE INDEX listener_port ON listener (load_balancer_id, transport, protocol_port) WHERE change <> 'delete';

        CREATE TABLE member (
          id uuid PRIMARY KEY,
          pool_id uuid NOT NULL REFERENCES pool ON DELETE CASCADE,
          load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
          project_id text NOT NULL,
          -- server id in HAProxy: unique in its pool and never reused, because stick tables and hashing store it
          server_number integer NOT NULL,
          name text NOT NULL DEFAULT '',
          admin_state_up boolean NOT NULL DEFAULT true,
          address text NOT NULL,
          protocol_port integer NOT NULL,
          weight integer NOT NULL DEFAULT 1,
          backup boolean NOT NULL DEFAULT false,
          subnet_id uuid,
          monitor_address text,
          monitor_port integer,
          tags text[] NOT NULL DEFAULT '{}',
          operating_status text NOT NULL DEFAULT 'NO_MONITOR',
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz,
          generation bigint NOT NULL,
          change text NOT NULL DEFAULT 'create' CHECK (change IN ('create', 'update', 'delete')),
          UNIQUE (pool_id, server_number)
        );
        CREATE INDEX member_page ON member (pool_id, created_at, id);
        CREATE INDEX member_load_balancer ON member (load_balancer_id);
        CREATE UNIQUE INDEX member_address ON member (pool_id, address, protocol_port) WHERE change <> 'delete';
        ALTER TABLE pool ADD COLUMN last_server_number integer NOT NULL DEFAULT 0;

        CREATE TABLE health_monitor (
          id uuid PRIMARY KEY,
          pool_id uuid NOT NULL REFERENCES pool ON DELETE CASCADE,
          load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
          project_id text NOT NULL,
          name text NOT NULL DEFAULT '',
          admin_state_up boolean NOT NULL DEFAULT true,
          type text NOT NULL,
          delay integer NOT NULL,
          timeout integer NOT NULL,
          max_retries integer NOT NULL,
          max_retries_down integer NOT NULL,
          http_method text,
          url_path text,
          expected_codes text,
          http_version numeric(2, 1),
          domain_name text,
          tags text[] NOT NULL DEFAULT '{}',
          created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
          updated_at timestamptz,
          generation bigint NOT NULL,
          change text NOT NULL DEFAULT 'create' CHECK (change IN ('create', 'update', 'delete'))
        );
        CREATE INDEX health_monitor_load_balancer ON health_monitor (load_balancer_id);
        CREATE INDEX health_monitor_page ON health_monitor (project_id, created_at, id);
        CREATE INDEX health_monitor_of_pool ON health_monitor (pool_id);
        CREATE UNIQUE INDEX health_monitor_pool ON health_monitor (pool_id) WHERE change <> 'delete';

        CREATE TABLE amphora (
          id uuid PRIMARY KEY,
          -- null while in the warm pool
          load_balancer_id uuid REFERENCES load_balancer ON DELETE RESTRICT,
          status text NOT NULL CHECK (status IN ('BOOTING', 'READY', 'ALLOCATED', 'ERROR', 'PENDING_DELETE')),
          role text CHECK (role IN ('STANDALONE', 'MASTER', 'BACKUP')),
          compute_id text,
          lb_network_ip text,
          management_port_id uuid,
          vrrp_ip text,
          vrrp_port_id uuid,
          ha_ip text,
          ha_port_id uuid,
          vrrp_interface text,
          vrrp_priority integer,
          created_at timestamptz NOT NULL DEFAULT now(),
          updated_at timestamptz,
          -- last state confirmed by its agent
          applied_generation bigint NOT NULL DEFAULT 0,
          applied_sha256 text,
          -- numbers of listeners, pools and members in its reports: ObjectTable of the heartbeat protocol
          applied_objects jsonb,
          lease_owner text,
          lease_until timestamptz,
          fence bigint NOT NULL DEFAULT 0
        );
        CREATE INDEX amphora_load_balancer ON amphora (load_balancer_id);
        CREATE INDEX amphora_warm ON amphora (created_at) WHERE load_balancer_id IS NULL;

        -- Rewritten every few seconds, and useless after a crash of PostgreSQL, when every amphora reports again.
        CREATE UNLOGGED TABLE amphora_health (
          amphora_id uuid PRIMARY KEY,
          boot_id text NOT NULL,
          last_seq bigint NOT NULL,
          last_seen timestamptz NOT NULL DEFAULT now(),
          sent_ms bigint NOT NULL,
          generation bigint NOT NULL,
          config_hash text NOT NULL,
          needs_apply boolean NOT NULL,
          vrrp_master boolean NOT NULL,
          haproxy_running boolean NOT NULL
        );

        -- Totals since the listener was created: earlier counter epochs (base) and the last reading of the current one.
        CREATE TABLE listener_statistics (
          listener_id uuid NOT NULL REFERENCES listener ON DELETE CASCADE,
          amphora_id uuid NOT NULL,
          epoch text NOT NULL,
          -- by the amphora's clock; older readings are ignored
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
          PRIMARY KEY (listener_id, amphora_id)
        );
    `)
  },
}
