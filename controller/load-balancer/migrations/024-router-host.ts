import type { Migration } from '../../database/migrate.js'

/** Which controller host has the routers whose networks span hosts. */
export const routerHost: Migration = {
  name: '024-router-host',
  up: async trx => {
    await trx.raw(`
      CREATE TABLE router_host (
        only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
        host_id uuid NOT NULL REFERENCES controller_host ON DELETE CASCADE,
        since timestamptz NOT NULL DEFAULT now());
    `)
  },
}
