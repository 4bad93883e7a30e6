import { rendered, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { boolean, oneOf, text } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'

const line = text(255, { pattern: /^[^\r\n]*$/, reason: 'Value should not contain a line break' })

export const l7Rule = defineResource({
  label: 'L7 Rule',
  singular: 'rule',
  plural: 'rules',
  table: 'l7_rule',
  parent: 'l7_policy_id',
  source: 'l7_rule o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  // openstacksdk repeats the id from the path.
  filters: { l7policy_id: { kind: 'uuid', sql: 'o.l7_policy_id' } },
  attributes: {
    id: shared.id,
    type: rendered(
      settableRequired(
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
        'Part of the request to compare.',
      ),
    ),
    compare_type: rendered(
      settableRequired(
        oneOf(['REGEX', 'STARTS_WITH', 'ENDS_WITH', 'CONTAINS', 'EQUAL_TO']),
        'Type of comparison. For a FILE_TYPE, REGEX sees what follows the last dot of the path, with that dot if the expression names it.',
      ),
    ),
    key: rendered(settable(line, null, 'Name of the header, cookie or certificate field.')),
    value: rendered(settableRequired(line, 'Value to compare with.')),
    invert: rendered(settable(boolean, false, 'Whether to invert the result of the comparison.')),
    provisioning_status: shared.provisioningStatus,
    operating_status: shared.switchStatus,
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    admin_state_up: shared.adminStateUp,
    tags: shared.tags,
  },
})
