import type { Migration } from '../../database/migrate.js'

/** What the network worker carries out. UPDATE names the columns that it reads. */
const WATCHED: Readonly<Record<string, string>> = {
  network: 'INSERT OR DELETE OR UPDATE OF admin_state_up, external, mtu',
  subnet: 'INSERT OR DELETE OR UPDATE OF gateway_ip, host_routes',
  port: 'INSERT OR DELETE OR UPDATE OF admin_state_up, mac_address, allowed_addresses, allowed_address_pairs, port_security_enabled, filtered',
  fixed_ip: 'INSERT OR DELETE',
  router: 'INSERT OR DELETE OR UPDATE OF admin_state_up, enable_snat, routes',
  router_port: 'INSERT OR DELETE OR UPDATE',
  floating_ip: 'INSERT OR DELETE OR UPDATE OF fixed_ip_address, router_id',
  security_group: 'INSERT OR DELETE OR UPDATE OF stateful',
  security_group_rule: 'INSERT OR DELETE',
  port_security_group: 'INSERT OR DELETE',
}

/** Wakes the network worker when something changes that it carries out. The payload is the table's name. */
export const wakeUps: Migration = {
  name: '007-wake-ups',
  up: async trx => {
    const triggers = Object.entries(WATCHED).map(
      ([table, events]) =>
        `CREATE TRIGGER network_changed AFTER ${events} ON ${table} FOR EACH STATEMENT EXECUTE FUNCTION network_changed();`,
    )
    await trx.raw(`
      CREATE FUNCTION network_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
        BEGIN
          PERFORM pg_notify('krater_network', TG_TABLE_NAME);
          RETURN NULL;
        END
      $$;
      ${triggers.join('\n      ')}
    `)
  },
}
