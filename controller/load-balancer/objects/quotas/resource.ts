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
    project_id: derived('text', 'o.project_id'),
    tenant_id: derived('text', 'o.project_id', { filterable: false }),
    loadbalancer: derived('integer', 'o.loadbalancer'),
    load_balancer: derived('integer', 'o.loadbalancer'),
    listener: derived('integer', 'o.listener'),
    pool: derived('integer', 'o.pool'),
    member: derived('integer', 'o.member'),
    healthmonitor: derived('integer', 'o.healthmonitor'),
    health_monitor: derived('integer', 'o.healthmonitor'),
    l7policy: derived('integer', 'o.l7policy'),
    l7rule: derived('integer', 'o.l7rule'),
  },
})
