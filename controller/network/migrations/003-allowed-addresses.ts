import type { Migration } from '../../database/migrate.js'

export const allowedAddresses: Migration = {
  name: '003-allowed-addresses',
  up: async trx => {
    await trx.raw(`
    -- Addresses of other ports that this port may also send from: VIPs that move between amphorae.
    ALTER TABLE port ADD COLUMN allowed_addresses text[] NOT NULL DEFAULT '{}';
  `)
  },
}
