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
  // openstacksdk repeats what the path says.
  filters: { pool_id: { kind: 'uuid', sql: 'o.pool_id', about: 'Pool that it belongs to.' } },
  attributes: {
    id: shared.id,
    name: shared.name,
    operating_status: shared.operatingStatus,
    provisioning_status: shared.provisioningStatus,
    admin_state_up: shared.adminStateUp,
    address: rendered(fixedRequired(ipAddress, 'Address of the server.')),
    protocol_port: rendered(fixedRequired(integer(1, 65535), 'Port of the server.')),
    weight: rendered(
      settable(integer(0, 256), 1, 'Share of the traffic beside the other members’; 0 gets no new connections.'),
    ),
    backup: rendered(settable(boolean, false, 'Whether it serves only when no other member does.')),
    subnet_id: rendered(fixed(uuid, null, 'Subnet from which the member is reached.')),
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    monitor_address: rendered(settable(ipAddress, null, 'Address that is probed; the member’s own when null.')),
    monitor_port: rendered(settable(integer(1, 65535), null, 'Port that is probed; the member’s own when null.')),
    tags: shared.tags,
    request_sriov: given(boolean, false, 'Whether the member should be reached by an interface of its own kind.'),
    vnic_type: derived('text', 'o.vnic_type', 'Kind of network interface by which the member is reached.'),
  },
})
