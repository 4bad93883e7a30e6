import type { Migration } from '../../database/migrate.js'

/** Renames the key `deed` of earlier versions to `action` in events. */
export const actions: Migration = {
  name: '009-actions',
  up: async trx => {
    await trx.raw(`
      UPDATE load_balancer_event
      SET detail = detail || jsonb_build_object('amphorae', (
        SELECT jsonb_agg(CASE WHEN jsonb_exists(one, 'deed') THEN one - 'deed' || jsonb_build_object('action', one->'deed') ELSE one END
                         ORDER BY at)
        FROM jsonb_array_elements(detail->'amphorae') WITH ORDINALITY AS every (one, at)))
      WHERE jsonb_typeof(detail->'amphorae') = 'array' AND detail->'amphorae' <> '[]'
    `)
  },
}
