import type { Migration } from '../../database/migrate.js'

/**
 * Every change of a member updates each of its indexes. Only the statement that removes deleted members
 * searches by load balancer, so that index contains only these; the quota counts members by pool. Few load
 * balancers have a flavor or a zone.
 */
export const fewerIndexes: Migration = {
  name: '011-fewer-indexes',
  up: async trx => {
    await trx.raw(`
      CREATE INDEX member_deleted ON member (load_balancer_id) WHERE change = 'delete';
      DROP INDEX member_load_balancer;

      DROP INDEX load_balancer_flavor, load_balancer_availability_zone;
      CREATE INDEX load_balancer_flavor ON load_balancer (flavor_id) WHERE flavor_id IS NOT NULL;
      CREATE INDEX load_balancer_availability_zone ON load_balancer (availability_zone) WHERE availability_zone IS NOT NULL;

      CREATE OR REPLACE FUNCTION quota_in_use(project text, resource text) RETURNS bigint STABLE LANGUAGE sql AS $$
        SELECT CASE resource
          WHEN 'loadbalancer' THEN (SELECT count(*) FROM load_balancer WHERE project_id = project)
          WHEN 'listener' THEN (SELECT count(*) FROM load_balancer b JOIN listener o ON o.load_balancer_id = b.id WHERE b.project_id = project)
          WHEN 'pool' THEN (SELECT count(*) FROM load_balancer b JOIN pool o ON o.load_balancer_id = b.id WHERE b.project_id = project)
          WHEN 'member' THEN (SELECT count(*) FROM load_balancer b JOIN pool p ON p.load_balancer_id = b.id
                                JOIN member o ON o.pool_id = p.id WHERE b.project_id = project)
          WHEN 'healthmonitor' THEN (SELECT count(*) FROM load_balancer b JOIN health_monitor o ON o.load_balancer_id = b.id WHERE b.project_id = project)
          WHEN 'l7policy' THEN (SELECT count(*) FROM load_balancer b JOIN l7_policy o ON o.load_balancer_id = b.id WHERE b.project_id = project)
          WHEN 'l7rule' THEN (SELECT count(*) FROM load_balancer b JOIN l7_rule o ON o.load_balancer_id = b.id WHERE b.project_id = project)
        END
      $$;
    `)
  },
}
