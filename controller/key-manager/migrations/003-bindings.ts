import type { Migration } from '../../database/migrate.js'

/**
 * Load balancers as consumers of what they use. A consumer with a load_balancer_id is a binding: what it consumes
 * cannot be deleted, and the amphorae of the load balancer may read it.
 */
export const bindings: Migration = {
  name: '003-bindings',
  up: async trx => {
    await trx.raw(`
        -- user_id is whoever bound it. confirmed: the load balancer is known to use it; until then, a request may still
        -- fail. material has, for each kind of material, the digest and the facts that an inspection found.
        ALTER TABLE secret_consumer ADD COLUMN load_balancer_id uuid, ADD COLUMN user_id text,
          ADD COLUMN confirmed boolean NOT NULL DEFAULT false, ADD COLUMN bound_at timestamptz,
          ADD COLUMN material jsonb NOT NULL DEFAULT '{}';
        ALTER TABLE container_consumer ADD COLUMN load_balancer_id uuid, ADD COLUMN user_id text,
          ADD COLUMN confirmed boolean NOT NULL DEFAULT false, ADD COLUMN bound_at timestamptz,
          ADD COLUMN material jsonb NOT NULL DEFAULT '{}';
        CREATE INDEX secret_consumer_due ON secret_consumer (load_balancer_id)
          WHERE load_balancer_id IS NOT NULL AND (material = '{}' OR NOT confirmed);
        CREATE INDEX container_consumer_due ON container_consumer (load_balancer_id)
          WHERE load_balancer_id IS NOT NULL AND (material = '{}' OR NOT confirmed);
        CREATE INDEX secret_consumer_load_balancer ON secret_consumer (load_balancer_id) WHERE load_balancer_id IS NOT NULL;
        CREATE INDEX container_consumer_load_balancer ON container_consumer (load_balancer_id) WHERE load_balancer_id IS NOT NULL;

        -- The amphorae that serve a load balancer.
        CREATE TABLE amphora_reader (
          amphora_id uuid PRIMARY KEY,
          load_balancer_id uuid NOT NULL,
          created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE INDEX amphora_reader_load_balancer ON amphora_reader (load_balancer_id);

        -- Bindings do not count: a quota of consumers is for those that a project registers itself.
        CREATE OR REPLACE FUNCTION quota_used(project text, kind text) RETURNS bigint STABLE LANGUAGE sql AS $$
          SELECT CASE kind
            WHEN 'secrets' THEN (SELECT count(*) FROM secret WHERE project_id = project AND deleted_at IS NULL
                                   AND (expiration IS NULL OR expiration > now()))
            WHEN 'orders' THEN (SELECT count(*) FROM secret_order WHERE project_id = project AND deleted_at IS NULL)
            WHEN 'containers' THEN (SELECT count(*) FROM container WHERE project_id = project AND deleted_at IS NULL)
            WHEN 'secret consumers' THEN (SELECT count(*) FROM secret_consumer
                                           WHERE project_id = project AND load_balancer_id IS NULL)
            WHEN 'container consumers' THEN (SELECT count(*) FROM container_consumer
                                              WHERE project_id = project AND load_balancer_id IS NULL)
            WHEN 'cas' THEN (SELECT count(*) FROM certificate_authority WHERE project_id = project)
          END
        $$`)
  },
}
