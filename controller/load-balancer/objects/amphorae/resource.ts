import { derived } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { PROJECT, shared } from '../shared-attributes.js'

/** The machines that run load balancers; for administrators only. */
export const amphora = defineResource({
  label: 'Amphora',
  singular: 'amphora',
  plural: 'amphorae',
  table: 'amphora',
  source: 'amphora o LEFT JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  project: 'lb.project_id',
  tagged: false,
  filters: { project_id: { kind: 'text', sql: 'lb.project_id', about: PROJECT } },
  attributes: {
    id: shared.id,
    loadbalancer_id: derived('uuid', 'o.load_balancer_id', 'Load balancer of the amphora.'),
    compute_id: derived('text', 'o.compute_id', 'ID of its machine.'),
    lb_network_ip: derived('text', 'o.lb_network_ip', 'Address on the management network.'),
    vrrp_ip: derived('text', 'o.vrrp_ip', 'Address on the VIP’s network.'),
    ha_ip: derived('text', 'o.ha_ip', 'Address of the VIP.'),
    vrrp_port_id: derived('uuid', 'o.vrrp_port_id', 'Port on the VIP’s network.'),
    ha_port_id: derived('uuid', 'o.ha_port_id', 'Port of the VIP.'),
    cert_expiration: derived(
      'time',
      'NULL::timestamp',
      'Always null: an amphora authenticates with a derived key, which does not expire.',
    ),
    cert_busy: derived('boolean', 'false::boolean', 'Always false.'),
    role: derived('text', 'o.role', 'Role in the pair, or STANDALONE.'),
    status: derived('text', 'o.status', 'Lifecycle status.'),
    vrrp_interface: derived('text', 'o.vrrp_interface', 'Network interface on the VIP’s network.'),
    vrrp_id: derived('integer', '1::integer', 'VRRP router ID of the pair.'),
    vrrp_priority: derived('integer', 'o.vrrp_priority', 'VRRP priority.'),
    cached_zone: derived('text', 'o.cached_zone', 'Zone of the machine.'),
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    image_id: derived('uuid', 'left(o.image_id, 32)::uuid', 'Image of the machine: the first half of its SHA-256.'),
    compute_flavor: derived('text', 'o.compute_flavor', 'Flavor of the machine.'),
  },
})
