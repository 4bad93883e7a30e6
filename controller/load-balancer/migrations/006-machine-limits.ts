import type { Migration } from '../../database/migrate.js'

/** What the machine of an amphora gives, as its agent told: the API refuses what exceeds it. */
export const machineLimits: Migration = {
  name: '006-machine-limits',
  up: async trx => {
    await trx.raw(`
      -- openFiles and memoryBytes; null until an agent has told
      ALTER TABLE amphora ADD COLUMN limits jsonb;
    `)
  },
}
