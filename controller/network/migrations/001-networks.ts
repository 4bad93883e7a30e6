import type { Migration } from '../../database/migrate.js'

export const networks: Migration = {
  name: '001-networks',
  up: async trx => {
    await trx.raw(`
    CREATE TABLE network (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      project_id text NOT NULL,
      name text NOT NULL DEFAULT '',
      description text NOT NULL DEFAULT '',
      admin_state_up boolean NOT NULL DEFAULT true,
      shared boolean NOT NULL DEFAULT false,
      external boolean NOT NULL DEFAULT false,
      mtu integer NOT NULL DEFAULT 1500,
      tags text[] NOT NULL DEFAULT '{}',
      -- Which built-in network this is; null for all others.
      built_in text UNIQUE,
      created_at timestamptz NOT NULL DEFAULT now(),
      updated_at timestamptz NOT NULL DEFAULT now(),
      revision_number integer NOT NULL DEFAULT 1
    );
    CREATE INDEX network_project ON network (project_id);

    CREATE TABLE subnet (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      network_id uuid NOT NULL REFERENCES network ON DELETE CASCADE,
      project_id text NOT NULL,
      name text NOT NULL DEFAULT '',
      description text NOT NULL DEFAULT '',
      ip_version smallint NOT NULL CHECK (ip_version IN (4, 6)),
      cidr cidr NOT NULL,
      gateway_ip inet,
      enable_dhcp boolean NOT NULL DEFAULT true,
      ipv6_ra_mode text,
      ipv6_address_mode text,
      dns_nameservers jsonb NOT NULL DEFAULT '[]',
      host_routes jsonb NOT NULL DEFAULT '[]',
      tags text[] NOT NULL DEFAULT '{}',
      created_at timestamptz NOT NULL DEFAULT now(),
      updated_at timestamptz NOT NULL DEFAULT now(),
      revision_number integer NOT NULL DEFAULT 1
    );
    CREATE INDEX subnet_network ON subnet (network_id);
    CREATE INDEX subnet_project ON subnet (project_id);

    -- Addresses to pick from when none is requested: never the gateway, network or broadcast address.
    CREATE TABLE allocation_pool (
      subnet_id uuid NOT NULL REFERENCES subnet ON DELETE CASCADE,
      first inet NOT NULL,
      last inet NOT NULL,
      -- The number of addresses, from the first, to pick from at random.
      span bigint NOT NULL CHECK (span > 0),
      PRIMARY KEY (subnet_id, first)
    );

    CREATE TABLE port (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      network_id uuid NOT NULL REFERENCES network,
      project_id text NOT NULL,
      name text NOT NULL DEFAULT '',
      description text NOT NULL DEFAULT '',
      admin_state_up boolean NOT NULL DEFAULT true,
      mac_address macaddr NOT NULL,
      device_id text NOT NULL DEFAULT '',
      device_owner text NOT NULL DEFAULT '',
      -- The name under which the load balancer service requested the port; null for users' ports.
      ensured_name text,
      tags text[] NOT NULL DEFAULT '{}',
      created_at timestamptz NOT NULL DEFAULT now(),
      updated_at timestamptz NOT NULL DEFAULT now(),
      revision_number integer NOT NULL DEFAULT 1,
      CONSTRAINT port_mac_address UNIQUE (network_id, mac_address),
      CONSTRAINT port_ensured UNIQUE (device_id, device_owner, ensured_name)
    );
    CREATE INDEX port_project ON port (project_id);
    CREATE INDEX port_owner ON port (device_owner, created_at) WHERE ensured_name IS NOT NULL;

    CREATE TABLE fixed_ip (
      subnet_id uuid NOT NULL REFERENCES subnet,
      address inet NOT NULL,
      port_id uuid NOT NULL REFERENCES port ON DELETE CASCADE,
      ordinal bigint GENERATED ALWAYS AS IDENTITY,
      PRIMARY KEY (subnet_id, address)
    );
    CREATE INDEX fixed_ip_port ON fixed_ip (port_id);
  `)
  },
}
