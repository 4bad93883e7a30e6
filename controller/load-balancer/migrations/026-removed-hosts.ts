import type { Migration } from '../../database/migrate.js'

/** A removed controller host is remembered for a while, so that it knows itself when it comes back; its name is free. */
export const removedHosts: Migration = {
  name: '026-removed-hosts',
  up: async trx => {
    await trx.raw(`
      ALTER TABLE controller_host DROP CONSTRAINT controller_host_name_key;
      CREATE UNIQUE INDEX controller_host_name ON controller_host (name) WHERE removed_at IS NULL;
    `)
  },
}
