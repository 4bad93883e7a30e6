import type { Migration } from '../../database/migrate.js'

/**
 * Which controller hosts there are, the signs of life of their processes, and which host an amphora's machine is bound
 * to. Machines of before are adopted by the host that finds them.
 */
export const controllerHosts: Migration = {
  name: '021-controller-hosts',
  up: async trx => {
    await trx.raw(`
      CREATE TABLE controller_host (
        id uuid PRIMARY KEY,
        name text NOT NULL UNIQUE,
        address text,
        instance text,
        version text,
        added_at timestamptz NOT NULL DEFAULT now(),
        last_seen_at timestamptz,
        -- By the health manager of another host.
        amphorae_heard_at timestamptz,
        gone_at timestamptz,
        removed_at timestamptz);
      CREATE TABLE controller_process (
        host_id uuid NOT NULL REFERENCES controller_host ON DELETE CASCADE,
        name text NOT NULL,
        pid integer NOT NULL,
        version text NOT NULL,
        -- What the lease_owner of its claims begins with.
        owner text NOT NULL,
        started_at timestamptz NOT NULL DEFAULT now(),
        last_seen_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (host_id, name, pid));
      ALTER TABLE load_balancer ADD COLUMN host_id uuid REFERENCES controller_host;
      ALTER TABLE amphora ADD COLUMN host_id uuid REFERENCES controller_host;
      CREATE INDEX load_balancer_host ON load_balancer (host_id) WHERE host_id IS NOT NULL;
      CREATE INDEX amphora_host ON amphora (host_id) WHERE host_id IS NOT NULL;
    `)
  },
}
