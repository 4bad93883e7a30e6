import type { Migration } from '../../database/migrate.js'

/**
 * A probe in OVN names an address and a port, and a change of a network an address: the members there are found by the
 * index that keeps them unique, which begins with these now. Every change of a member updates each of its indexes, so it
 * gets no other one.
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
