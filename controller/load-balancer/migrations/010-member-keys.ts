import type { Migration } from '../../database/migrate.js'

/**
 * A member's row goes with its pool's, and that with the load balancer's. A second key to the load balancer says nothing more, and checking it
 * for each member took a fifth of the time of an insert.
 */
export const memberKeys: Migration = {
  name: '010-member-keys',
  up: async trx => {
    await trx.raw('ALTER TABLE member DROP CONSTRAINT member_load_balancer_id_fkey')
  },
}
