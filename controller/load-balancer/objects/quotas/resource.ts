import { derived } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'

/** Rows of the quota table as lists show them: null is "by default". The spellings with an underscore are those of older clients. */
export const quota = defineResource({
  label: 'Quotas',
  singular: 'quota',
  plural: 'quotas',
  table: 'quota',
  source: 'quota o',
  key: { column: 'project_id', kind: 'text' },
  tagged: false,
  attributes: {
    project_id: derived('text', 'o.project_id', 'Project that the limits are for.'),
    tenant_id: derived('text', 'o.project_id', 'The same as project_id.', { filterable: false }),
    loadbalancer: derived('integer', 'o.loadbalancer', 'Most load balancers; null is the default, -1 unlimited.'),
    load_balancer: derived('integer', 'o.loadbalancer', 'The same as loadbalancer.'),
    listener: derived('integer', 'o.listener', 'Most listeners; null is the default, -1 unlimited.'),
    pool: derived('integer', 'o.pool', 'Most pools; null is the default, -1 unlimited.'),
    member: derived('integer', 'o.member', 'Most members; null is the default, -1 unlimited.'),
    healthmonitor: derived('integer', 'o.healthmonitor', 'Most health monitors; null is the default, -1 unlimited.'),
    health_monitor: derived('integer', 'o.healthmonitor', 'The same as healthmonitor.'),
    l7policy: derived('integer', 'o.l7policy', 'Most L7 policies; null is the default, -1 unlimited.'),
    l7rule: derived('integer', 'o.l7rule', 'Most L7 rules; null is the default, -1 unlimited.'),
  },
})
