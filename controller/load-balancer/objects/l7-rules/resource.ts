import { derived, given, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { childStatus, switchOperatingStatus, timestamp } from '../../schema/status.js'
import { boolean, oneOf, tags, text } from '../../schema/values.js'

const line = text(255, { pattern: /^[^\r\n]*$/, reason: 'Value should not hold a line break' })

export const l7Rule = defineResource({
  label: 'L7 Rule',
  singular: 'rule',
  plural: 'rules',
  table: 'l7_rule',
  parent: 'l7_policy_id',
  source: 'l7_rule o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  // openstacksdk repeats what the path says.
  filters: { l7policy_id: { kind: 'uuid', sql: 'o.l7_policy_id' } },
  attributes: {
    id: derived('uuid', 'o.id'),
    type: settableRequired(
      oneOf([
        'HOST_NAME',
        'PATH',
        'FILE_TYPE',
        'HEADER',
        'COOKIE',
        'SSL_CONN_HAS_CERT',
        'SSL_VERIFY_RESULT',
        'SSL_DN_FIELD',
      ]),
    ),
    compare_type: settableRequired(oneOf(['REGEX', 'STARTS_WITH', 'ENDS_WITH', 'CONTAINS', 'EQUAL_TO'])),
    key: settable(line, null),
    value: settableRequired(line),
    invert: settable(boolean, false),
    provisioning_status: derived('text', childStatus('o')),
    operating_status: derived('text', switchOperatingStatus('o')),
    created_at: derived('time', timestamp('o.created_at')),
    updated_at: derived('time', timestamp('o.updated_at')),
    project_id: given(text(36), null, { sql: 'o.project_id' }),
    tenant_id: given(text(36), null, { sql: 'o.project_id', filterable: false }),
    admin_state_up: settable(boolean, true, { null: { value: false } }),
    tags: settable(tags, [], { null: 'keep' }),
  },
})
