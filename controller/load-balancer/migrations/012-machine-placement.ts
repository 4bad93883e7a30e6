import type { Migration } from '../../database/migrate.js'

/** Flavor and zone of a machine, as reported by the compute driver. Before, all machines had the same. */
export const machinePlacement: Migration = {
  name: '012-machine-placement',
  up: async trx => {
    await trx.raw(`
      ALTER TABLE amphora ADD COLUMN compute_flavor text, ADD COLUMN cached_zone text;
      UPDATE amphora SET compute_flavor = 'namespace', cached_zone = 'local' WHERE compute_id IS NOT NULL;
    `)
  },
}
