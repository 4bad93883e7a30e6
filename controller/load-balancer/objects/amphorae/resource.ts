import { COMPUTE_FLAVOR, COMPUTE_ZONE } from '../../../compute/driver.js'
import { derived } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { timestamp } from '../../schema/status.js'

/** The machines that carry load balancers; for administrators. */
export const amphora = defineResource({
  label: 'Amphora',
  singular: 'amphora',
  plural: 'amphorae',
  table: 'amphora',
  source: 'amphora o LEFT JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  project: 'lb.project_id',
  tagged: false,
  filters: { project_id: { kind: 'text', sql: 'lb.project_id' } },
  attributes: {
    id: derived('uuid', 'o.id'),
    loadbalancer_id: derived('uuid', 'o.load_balancer_id'),
    compute_id: derived('text', 'o.compute_id'),
    lb_network_ip: derived('text', 'o.lb_network_ip'),
    vrrp_ip: derived('text', 'o.vrrp_ip'),
    ha_ip: derived('text', 'o.ha_ip'),
    vrrp_port_id: derived('uuid', 'o.vrrp_port_id'),
    ha_port_id: derived('uuid', 'o.ha_port_id'),
    cert_expiration: derived('time', 'NULL::timestamp'),
    cert_busy: derived('boolean', 'false::boolean'),
    role: derived('text', 'o.role'),
    status: derived('text', 'o.status'),
    vrrp_interface: derived('text', 'o.vrrp_interface'),
    vrrp_id: derived('integer', '1::integer'),
    vrrp_priority: derived('integer', 'o.vrrp_priority'),
    cached_zone: derived('text', `'${COMPUTE_ZONE}'::text`),
    created_at: derived('time', timestamp('o.created_at')),
    updated_at: derived('time', timestamp('o.updated_at')),
    image_id: derived('uuid', 'NULL::uuid'),
    compute_flavor: derived('text', `'${COMPUTE_FLAVOR}'::text`),
  },
})
