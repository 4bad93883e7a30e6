import type { Migration } from '../../database/migrate.js'

/**
 * OVN's probes name an address and a port, and changes around networks name an address. The index that keeps members
 * unique begins with these now, so it finds the members there. Each further index would make every change of a member
 * slower.
 */
export const membersByPlace: Migration = {
  name: '028-members-by-place',
  up: async trx => {
    await trx.raw(`
      DROP INDEX member_address;
      CREATE UNIQUE INDEX member_address ON member (address, protocol_port, pool_id) WHERE change <> 'delete';
    `)
  },
}
