import { derived, fixed, fixedRequired, given, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { childStatus, timestamp } from '../../schema/status.js'
import { boolean, integer, ipAddress, tags, text, uuid } from '../../schema/values.js'

export const member = defineResource({
  label: 'Member',
  singular: 'member',
  plural: 'members',
  table: 'member',
  parent: 'pool_id',
  source: 'member o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  // openstacksdk repeats what the path says.
  filters: { pool_id: { kind: 'uuid', sql: 'o.pool_id' } },
  attributes: {
    id: derived('uuid', 'o.id'),
    name: settable(text(255), ''),
    operating_status: derived('text', 'o.operating_status'),
    provisioning_status: derived('text', childStatus('o')),
    admin_state_up: settable(boolean, true, { null: { value: false } }),
    address: fixedRequired(ipAddress),
    protocol_port: fixedRequired(integer(1, 65535)),
    weight: settable(integer(0, 256), 1),
    backup: settable(boolean, false),
    subnet_id: fixed(uuid, null),
    project_id: given(text(36), null, { sql: 'o.project_id' }),
    tenant_id: given(text(36), null, { sql: 'o.project_id', filterable: false }),
    created_at: derived('time', timestamp('o.created_at')),
    updated_at: derived('time', timestamp('o.updated_at')),
    monitor_address: settable(ipAddress, null),
    monitor_port: settable(integer(1, 65535), null),
    tags: settable(tags, [], { null: 'keep' }),
    request_sriov: given(boolean, false),
    vnic_type: derived('text', 'o.vnic_type'),
  },
})
