import type { Migration } from '../../database/migrate.js'

/** A separate lane for orders that search for large primes: one takes as long as dozens of smaller ones. */
export const lanesByCost: Migration = {
  name: '002-lanes-by-cost',
  up: async trx => {
    await trx.raw(`
        ALTER TABLE secret_order DROP COLUMN lane;
        ALTER TABLE secret_order ADD COLUMN lane text NOT NULL GENERATED ALWAYS AS (
          CASE WHEN type = 'asymmetric' AND lower(meta->>'algorithm') IN ('rsa', 'dsa')
                 -- RSA is the default algorithm of a certificate order with a subject.
                 OR type = 'certificate' AND coalesce(nullif(lower(meta->>'algorithm'), ''), 'rsa') = 'rsa'
                    AND coalesce(meta->>'subject_dn', '') <> ''
                    AND coalesce(meta->>'container_ref', '') = '' AND coalesce(meta->>'request_data', '') = ''
               THEN CASE WHEN meta->>'bit_length' IS NULL OR meta->>'bit_length' IN ('1024', '2048') THEN 'primes'
                         ELSE 'large primes' END
               ELSE 'quick' END) STORED;
        CREATE INDEX secret_order_due ON secret_order (lane, project_id, created_at, id)
          WHERE status IN ('PENDING', 'PROCESSING') AND deleted_at IS NULL;
        -- Orders in progress, by project.
        CREATE INDEX secret_order_under_way ON secret_order (lane, project_id, lease_until)
          WHERE status = 'PROCESSING' AND deleted_at IS NULL;`)
  },
}
