import { derived, given, givenRequired, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList } from '../../schema/select.js'
import { childStatus, switchOperatingStatus, timestamp } from '../../schema/status.js'
import { boolean, integer, oneOf, tags, text, uuid, type ValueType } from '../../schema/values.js'

/** The position that stands for the end of the listener's policies. */
const LAST = 2_147_483_647

/** Absolute, with a host, in the characters of RFC 3986. */
const httpUrl = text(255, {
  pattern:
    /^https?:\/\/([\w.~!$&'()*+,;=:%-]*@)?([\w.~!$&'()*+,;=%-]+|\[[\da-f:.]+\])(:\d{0,5})?([/?#][\w.~:/?#[\]@!$&'()*+,;=%-]*)?$/i,
  reason: 'Value must be a valid URL string',
})

const REDIRECT_CODES: readonly unknown[] = [301, 302, 303, 307, 308]

const redirectCode: ValueType<number> = {
  kind: 'integer',
  jsonSchema: { type: 'integer', enum: REDIRECT_CODES },
  read: value =>
    typeof value === 'number' && REDIRECT_CODES.includes(value)
      ? { ok: true, value }
      : { ok: false, reason: `Value should be one of: ${REDIRECT_CODES.join(', ')}` },
}

export const l7Policy = defineResource({
  label: 'L7 Policy',
  singular: 'l7policy',
  plural: 'l7policies',
  table: 'l7_policy',
  parent: 'listener_id',
  source: 'l7_policy o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  attributes: {
    id: derived('uuid', 'o.id'),
    name: settable(text(255), ''),
    description: settable(text(255), ''),
    provisioning_status: derived('text', childStatus('o')),
    operating_status: derived('text', switchOperatingStatus('o')),
    admin_state_up: settable(boolean, true, { null: { value: false } }),
    project_id: given(text(36), null, { sql: 'o.project_id' }),
    tenant_id: given(text(36), null, { sql: 'o.project_id', filterable: false }),
    action: settableRequired(oneOf(['REJECT', 'REDIRECT_TO_POOL', 'REDIRECT_TO_URL', 'REDIRECT_PREFIX'])),
    listener_id: givenRequired(uuid, { sql: 'o.listener_id' }),
    redirect_pool_id: settable(uuid, null),
    redirect_url: settable(httpUrl, null),
    redirect_prefix: settable(httpUrl, null),
    position: settable(integer(1, LAST), LAST),
    rules: derived('json', idList('l7_rule', 'r', 'r.l7_policy_id = o.id')),
    created_at: derived('time', timestamp('o.created_at')),
    updated_at: derived('time', timestamp('o.updated_at')),
    tags: settable(tags, [], { null: 'keep' }),
    redirect_http_code: settable(redirectCode, null),
  },
})
