import type { Migration } from '../../database/migrate.js'

/** The compute driver says which flavor and zone a machine has. Until now every machine had the same. */
export const machinePlacement: Migration = {
  name: '012-machine-placement',
  up: async trx => {
    await trx.raw(`
      ALTER TABLE amphora ADD COLUMN compute_flavor text, ADD COLUMN cached_zone text;
      UPDATE amphora SET compute_flavor = 'namespace', cached_zone = 'local' WHERE compute_id IS NOT NULL;
    `)
  },
}
