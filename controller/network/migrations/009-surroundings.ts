import type { Migration } from '../../database/migrate.js'

/**
 * Tells on a channel what changes around addresses, for load balancers that depend on it: `network ID` when routers or
 * floating IPs of a network change, `address IP` when a port gets or loses an address.
 */
export const surroundings: Migration = {
  name: '009-surroundings',
  up: async trx => {
    await trx.raw(`
      -- The legs of routers on a network, among the ports of many machines and VIPs.
      CREATE INDEX port_network_owner ON port (network_id, device_owner);

      CREATE FUNCTION router_changed(changed uuid) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
        SELECT pg_notify('krater_surroundings', 'network ' || port.network_id)
          FROM router_port JOIN port ON port.id = router_port.port_id WHERE router_port.router_id = changed;
      $$;

      CREATE FUNCTION surroundings_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
        DECLARE
          changed record;
        BEGIN
          IF TG_OP = 'DELETE' THEN changed := OLD; ELSE changed := NEW; END IF;
          CASE TG_TABLE_NAME
            WHEN 'router' THEN PERFORM router_changed(changed.id);
            WHEN 'router_port' THEN
              PERFORM router_changed(changed.router_id);
              PERFORM pg_notify('krater_surroundings', 'network ' || network_id) FROM port WHERE id = changed.port_id;
            WHEN 'floating_ip' THEN
              PERFORM pg_notify('krater_surroundings', 'network ' || network_id) FROM subnet
                WHERE id = changed.fixed_subnet_id OR TG_OP = 'UPDATE' AND id = OLD.fixed_subnet_id;
            WHEN 'subnet' THEN PERFORM pg_notify('krater_surroundings', 'network ' || changed.network_id);
            WHEN 'network' THEN
              PERFORM pg_notify('krater_surroundings', 'network ' || changed.id);
              -- Also behind the gateways of routers there, and their legs on networks of others.
              PERFORM router_changed(id) FROM (SELECT DISTINCT router_port.router_id AS id FROM router_port
                JOIN port ON port.id = router_port.port_id WHERE port.network_id = changed.id) AS router;
            WHEN 'port' THEN
              PERFORM router_changed(router_id) FROM router_port WHERE port_id = changed.id;
            WHEN 'fixed_ip' THEN PERFORM pg_notify('krater_surroundings', 'address ' || host(changed.address));
          END CASE;
          RETURN NULL;
        END
      $$;

      CREATE TRIGGER surroundings_changed AFTER UPDATE OF admin_state_up ON router
        FOR EACH ROW WHEN (OLD.admin_state_up <> NEW.admin_state_up) EXECUTE FUNCTION surroundings_changed();
      CREATE TRIGGER surroundings_changed AFTER INSERT OR DELETE ON router_port
        FOR EACH ROW EXECUTE FUNCTION surroundings_changed();
      CREATE TRIGGER surroundings_changed AFTER UPDATE OF admin_state_up ON port
        FOR EACH ROW WHEN (OLD.admin_state_up <> NEW.admin_state_up) EXECUTE FUNCTION surroundings_changed();
      CREATE TRIGGER surroundings_changed AFTER INSERT OR DELETE OR UPDATE OF fixed_subnet_id, fixed_ip_address, router_id
        ON floating_ip FOR EACH ROW EXECUTE FUNCTION surroundings_changed();
      CREATE TRIGGER surroundings_changed AFTER INSERT OR DELETE ON subnet
        FOR EACH ROW EXECUTE FUNCTION surroundings_changed();
      CREATE TRIGGER surroundings_changed AFTER UPDATE OF shared, admin_state_up ON network
        FOR EACH ROW WHEN (OLD.shared <> NEW.shared OR OLD.admin_state_up <> NEW.admin_state_up) EXECUTE FUNCTION surroundings_changed();
      CREATE TRIGGER surroundings_changed AFTER INSERT OR DELETE ON fixed_ip
        FOR EACH ROW EXECUTE FUNCTION surroundings_changed();

      -- What DHCP in OVN says.
      CREATE TRIGGER dhcp_changed AFTER UPDATE OF enable_dhcp, dns_nameservers ON subnet
        FOR EACH STATEMENT EXECUTE FUNCTION network_changed();
    `)
  },
}
