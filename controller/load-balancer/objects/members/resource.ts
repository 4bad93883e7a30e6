import { derived, fixed, fixedRequired, given, rendered, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { boolean, integer, ipAddress, uuid } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'

export const member = defineResource({
  label: 'Member',
  singular: 'member',
  plural: 'members',
  table: 'member',
  parent: 'pool_id',
  source: 'member o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  // openstacksdk repeats the id from the path.
  filters: { pool_id: { kind: 'uuid', sql: 'o.pool_id', about: 'Pool of the member.' } },
  attributes: {
    id: shared.id,
    name: rendered(shared.name),
    operating_status: shared.operatingStatus,
    operating_reason: shared.operatingReason('member'),
    provisioning_status: shared.provisioningStatus,
    admin_state_up: shared.adminStateUp,
    address: rendered(fixedRequired(ipAddress, 'IP address of the member.')),
    protocol_port: rendered(fixedRequired(integer(1, 65535), 'Port of the member.')),
    weight: rendered(
      settable(integer(0, 256), 1, 'Share of the traffic, relative to other members; 0 gets no new connections.'),
    ),
    backup: rendered(settable(boolean, false, 'Whether it serves only while no other member is up.')),
    subnet_id: rendered(fixed(uuid, null, 'Subnet through which the member is reached.')),
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    monitor_address: rendered(settable(ipAddress, null, 'Address to probe; null for the address of the member.')),
    monitor_port: rendered(settable(integer(1, 65535), null, 'Port to probe; null for the port of the member.')),
    tags: shared.tags,
    request_sriov: given(boolean, false, 'Whether to reach the member through an SR-IOV interface.'),
    vnic_type: derived('text', 'o.vnic_type', 'VNIC type of the interface through which the member is reached.'),
  },
})
