import type { Migration } from '../../database/migrate.js'

/** Notices before certificates in use expire. */
export const expiryNotices: Migration = {
  name: '018-expiry-notices',
  up: async trx => {
    await trx.raw(`
        -- The last notice of the certificate with this digest: so many days before its expiry, 0 for the expiry.
        ALTER TABLE tls_material ADD COLUMN noticed_days integer, ADD COLUMN noticed_digest text`)
  },
}
