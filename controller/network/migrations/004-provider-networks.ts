import type { Migration } from '../../database/migrate.js'

/** Where a network leads: it stays on this host, or is (a VLAN of) a physical network. */
export const providerNetworks: Migration = {
  name: '004-provider-networks',
  up: async trx => {
    await trx.raw(`
      ALTER TABLE network
        ADD COLUMN network_type text NOT NULL DEFAULT 'local',
        -- A name in network.physical_networks.
        ADD COLUMN physical_network text,
        ADD COLUMN segmentation_id integer CHECK (segmentation_id BETWEEN 1 AND 4094),
        ADD CONSTRAINT network_provider CHECK (
          (network_type, physical_network IS NOT NULL, segmentation_id IS NOT NULL)
            IN (('local', false, false), ('flat', true, false), ('vlan', true, true)));
      CREATE UNIQUE INDEX network_flat ON network (physical_network) WHERE network_type = 'flat';
      CREATE UNIQUE INDEX network_segment ON network (physical_network, segmentation_id) WHERE network_type = 'vlan';
    `)
  },
}
