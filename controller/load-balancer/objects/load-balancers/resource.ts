import { derived, fixed, given, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList } from '../../schema/select.js'
import { loadBalancerFault, loadBalancerStatus, timestamp } from '../../schema/status.js'
import { boolean, ipAddress, listOf, record, setOf, tags, text, uuid } from '../../schema/values.js'

/** It stands in the lines of the traffic log, where blanks separate the fields. */
const projectId = text(36, {
  minimum: 1,
  pattern: /^[^\p{C}\p{Z}]+$/u,
  reason: 'Value should not hold blanks or control characters',
})

export const loadBalancer = defineResource({
  label: 'Load Balancer',
  singular: 'loadbalancer',
  plural: 'loadbalancers',
  table: 'load_balancer',
  source: 'load_balancer o',
  attributes: {
    id: derived('uuid', 'o.id'),
    name: settable(text(255), ''),
    description: settable(text(255), ''),
    provisioning_status: derived('text', loadBalancerStatus('o')),
    operating_status: derived('text', 'o.operating_status'),
    admin_state_up: settable(boolean, true, { null: { value: false } }),
    project_id: fixed(projectId, null),
    tenant_id: given(projectId, null, { sql: 'o.project_id', filterable: false }),
    created_at: derived('time', timestamp('o.created_at')),
    updated_at: derived('time', timestamp('o.updated_at')),
    vip_address: fixed(ipAddress, null),
    vip_port_id: fixed(uuid, null),
    vip_subnet_id: fixed(uuid, null),
    vip_network_id: fixed(uuid, null),
    vip_sg_ids: settable(setOf(uuid), []),
    additional_vips: given(
      listOf(record({ subnet_id: uuid, ip_address: ipAddress, port_id: uuid }, ['subnet_id'])),
      [],
      { sql: 'o.additional_vips' },
    ),
    listeners: derived('json', idList('listener', 'l', 'l.load_balancer_id = o.id')),
    pools: derived('json', idList('pool', 'p', 'p.load_balancer_id = o.id')),
    provider: fixed(text(64, { minimum: 1 }), null),
    flavor_id: fixed(uuid, null),
    flavor: given(text(255, { minimum: 1 }), null),
    vip_qos_policy_id: settable(uuid, null),
    tags: settable(tags, [], { null: 'keep' }),
    availability_zone: fixed(text(255), null),
    vip_vnic_type: derived('text', 'o.vip_vnic_type'),
    fault: derived('json', loadBalancerFault('o'), { omittedWhenNull: true }),
  },
})
