import type { Migration } from '../../database/migrate.js'

/**
 * What an amphora is: its compute driver, its image and its agent. Before, all machines of an installation were those of
 * one driver, without an image.
 */
export const placement: Migration = {
  name: '020-placement',
  up: async trx => {
    await trx.raw(`
      ALTER TABLE amphora ADD COLUMN compute_driver text, ADD COLUMN image_tag text, ADD COLUMN image_id text,
                          ADD COLUMN agent_version text;
      UPDATE amphora SET compute_driver = 'namespace', compute_flavor = 'namespace';
    `)
  },
}
