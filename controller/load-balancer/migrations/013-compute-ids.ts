import type { Migration } from '../../database/migrate.js'

/** The ID of a machine is a UUID, as Octavia's clients expect. Before, it was the name of its namespace. */
export const computeIds: Migration = {
  name: '013-compute-ids',
  up: async trx => {
    await trx.raw('UPDATE amphora SET compute_id = id::text WHERE compute_id IS NOT NULL')
  },
}
