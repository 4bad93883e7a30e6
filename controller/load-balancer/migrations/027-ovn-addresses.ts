import type { Migration } from '../../database/migrate.js'

/** The addresses in OVN that load balancers share: each stands as long as one uses it. */
export const ovnAddresses: Migration = {
  name: '027-ovn-addresses',
  up: async trx => {
    await trx.raw(`
      CREATE TABLE ovn_address_use (
        load_balancer_id uuid NOT NULL REFERENCES load_balancer ON DELETE CASCADE,
        -- balancer: of a network's balancer router. probe: from which members on a subnet are probed.
        kind text NOT NULL CHECK (kind IN ('balancer', 'probe')),
        -- The network, or the subnet.
        place_id uuid NOT NULL,
        PRIMARY KEY (kind, place_id, load_balancer_id)
      );
      CREATE INDEX ovn_address_use_load_balancer ON ovn_address_use (load_balancer_id);
      -- What a change around a network, or of a machine's address, concerns.
      CREATE INDEX load_balancer_ovn_network ON load_balancer (vip_network_id) WHERE provider = 'ovn';
      -- What waits for OVN, or for networks there.
      CREATE INDEX load_balancer_ovn_fault ON load_balancer ((fault ->> 'code')) WHERE provider = 'ovn' AND fault IS NOT NULL;
    `)
  },
}
