import { completed, derived, fixed, given, rendered, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList } from '../../schema/select.js'
import { loadBalancerFault, loadBalancerStatus } from '../../schema/status.js'
import { described, ipAddress, listOf, record, setOf, text, uuid } from '../../schema/values.js'
import { PROJECT, PROVISIONING_STATUS, shared, TENANT } from '../shared-attributes.js'

/** It stands in the lines of the traffic log, where blanks separate the fields. */
const projectId = text(36, {
  minimum: 1,
  pattern: /^[^\p{C}\p{Z}]+$/u,
  reason: 'Value should not hold blanks or control characters',
})

const additionalVip = record(
  {
    subnet_id: described(uuid, 'Subnet of the address.'),
    ip_address: described(ipAddress, 'The address; a free one when not given.'),
    port_id: described(uuid, 'Port of the address; given by the service.'),
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
    admin_state_up: shared.adminStateUp,
    project_id: rendered(completed(fixed(projectId, null, PROJECT))),
    tenant_id: given(projectId, null, TENANT, { sql: 'o.project_id', filterable: false }),
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    vip_address: completed(fixed(ipAddress, null, 'Address of the VIP; a free one when not given.')),
    vip_port_id: fixed(uuid, null, 'Port of the VIP; made when not given.'),
    vip_subnet_id: fixed(uuid, null, 'Subnet of the VIP.'),
    vip_network_id: fixed(uuid, null, 'Network of the VIP; one of its subnets is chosen.'),
    vip_sg_ids: settable(setOf(uuid), [], 'Security groups of the VIP’s port.'),
    additional_vips: given(listOf(additionalVip), [], 'Further addresses on which the load balancer answers.', {
      sql: 'o.additional_vips',
    }),
    listeners: derived('json', idList('listener', 'l', 'l.load_balancer_id = o.id'), 'Listeners.'),
    pools: derived('json', idList('pool', 'p', 'p.load_balancer_id = o.id'), 'Pools.'),
    provider: rendered(completed(fixed(text(64, { minimum: 1 }), null, 'Provider that carries the load balancer.'))),
    flavor_id: fixed(uuid, null, 'Flavor of the load balancer.'),
    flavor: given(text(255, { minimum: 1 }), null, 'Name of the flavor, instead of flavor_id.'),
    vip_qos_policy_id: settable(uuid, null, 'QoS policy of the VIP’s port.'),
    tags: shared.tags,
    availability_zone: fixed(text(255), null, 'Name of the availability zone of the load balancer.'),
    vip_vnic_type: derived('text', 'o.vip_vnic_type', 'Kind of the VIP’s network interface.'),
    fault: derived(
      'json',
      loadBalancerFault('o'),
      'Why the load balancer is in ERROR, since when, and when it is tried again.',
      { omittedWhenNull: true },
    ),
  },
})
