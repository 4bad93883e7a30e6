import type { Migration } from '../../database/migrate.js'

/**
 * A member's row is deleted with its pool's, which is deleted with the load balancer's. A second foreign key to
 * the load balancer is redundant, and checking it for each member took a fifth of the time of an insert.
 */
export const memberKeys: Migration = {
  name: '010-member-keys',
  up: async trx => {
    await trx.raw('ALTER TABLE member DROP CONSTRAINT member_load_balancer_id_fkey')
  },
}
