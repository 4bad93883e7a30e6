import { derived } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'

/**
 * Rows of the quota table as lists show them; null means the default. Older clients use the names with an
 * underscore.
 */
export const quota = defineResource({
  label: 'Quotas',
  singular: 'quota',
  plural: 'quotas',
  table: 'quota',
  source: 'quota o',
  key: { column: 'project_id', kind: 'text' },
  tagged: false,
  attributes: {
    project_id: derived('text', 'o.project_id', 'Project of the quota.'),
    tenant_id: derived('text', 'o.project_id', 'Alias of project_id.', { filterable: false }),
    loadbalancer: derived(
      'integer',
      'o.loadbalancer',
      'Maximum number of load balancers; null means the default, -1 unlimited.',
    ),
    load_balancer: derived('integer', 'o.loadbalancer', 'Alias of loadbalancer.'),
    listener: derived('integer', 'o.listener', 'Maximum number of listeners; null means the default, -1 unlimited.'),
    pool: derived('integer', 'o.pool', 'Maximum number of pools; null means the default, -1 unlimited.'),
    member: derived('integer', 'o.member', 'Maximum number of members; null means the default, -1 unlimited.'),
    healthmonitor: derived(
      'integer',
      'o.healthmonitor',
      'Maximum number of health monitors; null means the default, -1 unlimited.',
    ),
    health_monitor: derived('integer', 'o.healthmonitor', 'Alias of healthmonitor.'),
    l7policy: derived('integer', 'o.l7policy', 'Maximum number of L7 policies; null means the default, -1 unlimited.'),
    l7rule: derived('integer', 'o.l7rule', 'Maximum number of L7 rules; null means the default, -1 unlimited.'),
  },
})
