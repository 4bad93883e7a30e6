import type { Migration } from '../../database/migrate.js'

/** Security groups, their rules, and which ports they filter. */
export const securityGroups: Migration = {
  name: '006-security-groups',
  up: async trx => {
    await trx.raw(`
      CREATE TABLE security_group (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        stateful boolean NOT NULL DEFAULT true,
        -- The group of ports that name none. A project gets it at its first use.
        is_default boolean NOT NULL DEFAULT false,
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        revision_number integer NOT NULL DEFAULT 1
      );
      CREATE INDEX security_group_project ON security_group (project_id);
      CREATE UNIQUE INDEX security_group_default ON security_group (project_id) WHERE is_default;

      CREATE TABLE security_group_rule (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        project_id text NOT NULL,
        security_group_id uuid NOT NULL REFERENCES security_group ON DELETE CASCADE,
        description text NOT NULL DEFAULT '',
        direction text NOT NULL CHECK (direction IN ('ingress', 'egress')),
        ethertype text NOT NULL CHECK (ethertype IN ('IPv4', 'IPv6')),
        -- As the request spelt it: a name, or a number. Null is any protocol.
        protocol text,
        -- Its number in IP; 58 for ICMP in IPv6.
        protocol_number smallint CHECK (protocol_number BETWEEN 0 AND 255),
        -- Ports (in ICMP the type and the code); null is any.
        port_range_min integer CHECK (port_range_min BETWEEN 0 AND 65535),
        port_range_max integer CHECK (port_range_max BETWEEN 0 AND 65535),
        remote_ip_prefix cidr,
        -- The other side is any address of a port with this group.
        remote_group_id uuid REFERENCES security_group ON DELETE CASCADE,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        revision_number integer NOT NULL DEFAULT 1,
        CHECK ((protocol IS NULL) = (protocol_number IS NULL)),
        CHECK (remote_ip_prefix IS NULL OR remote_group_id IS NULL),
        CHECK (remote_ip_prefix IS NULL OR family(remote_ip_prefix) = CASE ethertype WHEN 'IPv4' THEN 4 ELSE 6 END)
      );
      CREATE INDEX security_group_rule_project ON security_group_rule (project_id);
      CREATE INDEX security_group_rule_remote_group ON security_group_rule (remote_group_id);
      -- No group has two rules that mean the same.
      CREATE UNIQUE INDEX security_group_rule_same ON security_group_rule (
        security_group_id, direction, ethertype, coalesce(protocol_number, -1),
        coalesce(port_range_min, CASE WHEN protocol_number IN (1, 58) THEN -1 ELSE 1 END),
        coalesce(port_range_max, CASE WHEN protocol_number IN (1, 58) THEN -1 ELSE 65535 END),
        coalesce(remote_ip_prefix, CASE ethertype WHEN 'IPv4' THEN '0.0.0.0/0'::cidr ELSE '::/0'::cidr END),
        coalesce(remote_group_id, '00000000-0000-0000-0000-000000000000'));

      -- Whether new ports have port security unless they say otherwise.
      ALTER TABLE network ADD COLUMN port_security_enabled boolean NOT NULL DEFAULT true;
      ALTER TABLE port
        -- Without it, the port may send from any address, and no group filters it.
        ADD COLUMN port_security_enabled boolean NOT NULL DEFAULT true,
        -- Whether its groups say what it may send and receive; without a group, nothing. Ports from before there were
        -- groups and those of Krater's services are not filtered unless somebody gives them groups.
        ADD COLUMN filtered boolean NOT NULL DEFAULT false,
        -- What else it may send from: [{"ip_address": address or cidr, "mac_address": mac}]. Set by users.
        ADD COLUMN allowed_address_pairs jsonb NOT NULL DEFAULT '[]',
        ADD CONSTRAINT port_filtered CHECK (port_security_enabled OR NOT filtered);

      CREATE TABLE port_security_group (
        port_id uuid NOT NULL REFERENCES port ON DELETE CASCADE,
        security_group_id uuid NOT NULL REFERENCES security_group,
        PRIMARY KEY (port_id, security_group_id)
      );
      CREATE INDEX port_security_group_group ON port_security_group (security_group_id);

      ALTER TABLE quota ADD COLUMN security_group integer, ADD COLUMN security_group_rule integer;
    `)
  },
}
