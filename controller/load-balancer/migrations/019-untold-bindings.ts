import type { Migration } from '../../database/migrate.js'

/** Finds load balancers of which the key manager must be told again. */
export const untoldBindings: Migration = {
  name: '019-untold-bindings',
  up: async trx => {
    await trx.raw(`CREATE INDEX load_balancer_untold ON load_balancer (id) WHERE bound_sha256 = 'due'`)
  },
}
