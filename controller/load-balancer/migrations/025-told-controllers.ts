import type { Migration } from '../../database/migrate.js'

/** The addresses of controllers that an enrolled host was last told; null: those of its enrolment. */
export const toldControllers: Migration = {
  name: '025-told-controllers',
  up: async trx => {
    await trx.raw('ALTER TABLE enrolled_host ADD COLUMN told_controllers jsonb')
  },
}
