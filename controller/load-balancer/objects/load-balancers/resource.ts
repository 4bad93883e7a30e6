import { completed, derived, fixed, given, rendered, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList } from '../../schema/select.js'
import { loadBalancerFault, loadBalancerReason, loadBalancerStatus } from '../../schema/status.js'
import { described, ipAddress, listOf, record, setOf, text, uuid } from '../../schema/values.js'
import { OPERATING_REASON, PROJECT, PROVISIONING_STATUS, shared, TENANT } from '../shared-attributes.js'

/** Part of the traffic log's lines, whose fields are separated by spaces. */
const projectId = text(36, {
  minimum: 1,
  pattern: /^[^\p{C}\p{Z}]+$/u,
  reason: 'Value should not contain spaces or control characters',
})

const additionalVip = record(
  {
    subnet_id: described(uuid, 'Subnet of the address.'),
    ip_address: described(ipAddress, 'IP address; a free one if not given.'),
    port_id: described(uuid, 'Port of the address; set by the service.'),
  },
  ['subnet_id'],
)

export const loadBalancer = defineResource({
  label: 'Load Balancer',
  singular: 'loadbalancer',
  plural: 'loadbalancers',
  table: 'load_balancer',
  source: 'load_balancer o',
  attributes: {
    id: shared.id,
    name: rendered(shared.name),
    description: shared.description,
    provisioning_status: derived('text', loadBalancerStatus('o'), PROVISIONING_STATUS),
    operating_status: shared.operatingStatus,
    operating_reason: derived('json', loadBalancerReason('o'), OPERATING_REASON),
    admin_state_up: shared.adminStateUp,
    project_id: rendered(completed(fixed(projectId, null, PROJECT))),
    tenant_id: given(projectId, null, TENANT, { sql: 'o.project_id', filterable: false }),
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    vip_address: completed(fixed(ipAddress, null, 'IP address of the VIP; a free one if not given.')),
    vip_port_id: fixed(uuid, null, 'Port of the VIP; created if not given.'),
    vip_subnet_id: fixed(uuid, null, 'Subnet of the VIP.'),
    vip_network_id: fixed(uuid, null, 'Network of the VIP; without vip_subnet_id, the service chooses a subnet.'),
    vip_sg_ids: settable(setOf(uuid), [], 'Security groups of the VIP port.'),
    additional_vips: given(listOf(additionalVip), [], 'Additional VIP addresses of the load balancer.', {
      sql: 'o.additional_vips',
    }),
    listeners: derived('json', idList('listener', 'l', 'l.load_balancer_id = o.id'), 'Listeners of the load balancer.'),
    pools: derived('json', idList('pool', 'p', 'p.load_balancer_id = o.id'), 'Pools of the load balancer.'),
    provider: rendered(completed(fixed(text(64, { minimum: 1 }), null, 'Provider of the load balancer.'))),
    flavor_id: fixed(uuid, null, 'Flavor of the load balancer.'),
    flavor: given(text(255, { minimum: 1 }), null, 'Name of the flavor, instead of flavor_id.'),
    vip_qos_policy_id: settable(uuid, null, 'QoS policy of the VIP port.'),
    tags: shared.tags,
    availability_zone: fixed(text(255), null, 'Name of the availability zone.'),
    vip_vnic_type: derived('text', 'o.vip_vnic_type', 'VNIC type of the VIP port.'),
    fault: derived(
      'json',
      loadBalancerFault('o'),
      'Why the load balancer is in ERROR, since when, and when the next attempt is due.',
      { omittedWhenNull: true },
    ),
  },
})
