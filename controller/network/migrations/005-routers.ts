import type { Migration } from '../../database/migrate.js'

/** Routers, their ports, and floating IPs. */
export const routers: Migration = {
  name: '005-routers',
  up: async trx => {
    await trx.raw(`
      CREATE TABLE router (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        admin_state_up boolean NOT NULL DEFAULT true,
        -- Whether what leaves by the gateway gets the gateway port's address.
        enable_snat boolean NOT NULL DEFAULT true,
        -- Extra routes: [{"destination": cidr, "nexthop": address}].
        routes jsonb NOT NULL DEFAULT '[]',
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        revision_number integer NOT NULL DEFAULT 1
      );
      CREATE INDEX router_project ON router (project_id);

      -- The legs of routers: ports with device_owner network:router_interface, or network:router_gateway for the gateway.
      CREATE TABLE router_port (
        port_id uuid PRIMARY KEY REFERENCES port,
        router_id uuid NOT NULL REFERENCES router,
        gateway boolean NOT NULL
      );
      CREATE INDEX router_port_router ON router_port (router_id);
      CREATE UNIQUE INDEX router_gateway ON router_port (router_id) WHERE gateway;

      CREATE TABLE floating_ip (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        project_id text NOT NULL,
        description text NOT NULL DEFAULT '',
        floating_network_id uuid NOT NULL REFERENCES network,
        -- Holds the address: a port with device_owner network:floatingip and one fixed IP, to which no device is plugged in.
        floating_port_id uuid NOT NULL UNIQUE REFERENCES port,
        -- What it leads to. When that address goes, with its port or alone, the floating IP is disassociated.
        fixed_subnet_id uuid,
        fixed_ip_address inet,
        -- The router that translates; null while nothing is associated.
        router_id uuid REFERENCES router,
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        revision_number integer NOT NULL DEFAULT 1,
        CONSTRAINT floating_ip_fixed_ip FOREIGN KEY (fixed_subnet_id, fixed_ip_address)
          REFERENCES fixed_ip ON DELETE SET NULL,
        CONSTRAINT floating_ip_association UNIQUE (floating_network_id, fixed_subnet_id, fixed_ip_address),
        CONSTRAINT floating_ip_router CHECK (
          (fixed_subnet_id IS NULL) = (router_id IS NULL) AND (fixed_ip_address IS NULL) = (router_id IS NULL))
      );
      CREATE INDEX floating_ip_project ON floating_ip (project_id);
      CREATE INDEX floating_ip_by_router ON floating_ip (router_id);
      CREATE INDEX floating_ip_by_fixed_ip ON floating_ip (fixed_subnet_id, fixed_ip_address);

      CREATE FUNCTION disassociate_floating_ip() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
        BEGIN
          NEW.router_id := NULL;
          NEW.updated_at := now();
          NEW.revision_number := OLD.revision_number + 1;
          RETURN NEW;
        END
      $$;
      -- Only the foreign key clears the address without the router.
      CREATE TRIGGER fixed_ip_gone BEFORE UPDATE ON floating_ip FOR EACH ROW
        WHEN (NEW.fixed_ip_address IS NULL AND NEW.router_id IS NOT NULL)
        EXECUTE FUNCTION disassociate_floating_ip();

      ALTER TABLE quota ADD COLUMN router integer, ADD COLUMN floatingip integer;
    `)
  },
}
