import type { Migration } from '../../database/migrate.js'

/** Limits of an amphora's machine, as reported by its agent. The API rejects load balancers that exceed them. */
export const machineLimits: Migration = {
  name: '006-machine-limits',
  up: async trx => {
    await trx.raw(`
      -- openFiles and memoryBytes; null until an agent has reported them
      ALTER TABLE amphora ADD COLUMN limits jsonb;
    `)
  },
}
