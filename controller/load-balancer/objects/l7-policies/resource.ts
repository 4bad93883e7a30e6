import { completed, derived, givenRequired, rendered, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { idList } from '../../schema/select.js'
import { integer, oneOf, text, uuid, type ValueType } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'

/** The position that means the end of the list. */
const LAST = 2_147_483_647

/** An absolute URL with a host, in RFC 3986 characters. */
const httpUrl = text(255, {
  pattern:
    /^https?:\/\/([\w.~!$&'()*+,;=:%-]*@)?([\w.~!$&'()*+,;=%-]+|\[[\da-f:.]+\])(:\d{0,5})?([/?#][\w.~:/?#[\]@!$&'()*+,;=%-]*)?$/i,
  reason: 'Value must be a valid URL string, such as https://example.org/path',
})

const REDIRECT_CODES = [301, 302, 303, 307, 308]

const code = integer(301, 308)
const redirectCode: ValueType<number> = {
  ...code,
  jsonSchema: { type: 'integer', enum: REDIRECT_CODES },
  read: value => {
    const reading = code.read(value)
    return reading.ok && REDIRECT_CODES.includes(reading.value)
      ? reading
      : { ok: false, reason: `Value should be one of: ${REDIRECT_CODES.join(', ')}` }
  },
}

export const l7Policy = defineResource({
  label: 'L7 Policy',
  singular: 'l7policy',
  plural: 'l7policies',
  table: 'l7_policy',
  parent: 'listener_id',
  source: 'l7_policy o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  attributes: {
    id: shared.id,
    name: shared.name,
    description: shared.description,
    provisioning_status: shared.provisioningStatus,
    operating_status: shared.switchStatus,
    admin_state_up: shared.adminStateUp,
    project_id: shared.projectId,
    tenant_id: shared.tenantId,
    action: rendered(
      settableRequired(
        oneOf(['REJECT', 'REDIRECT_TO_POOL', 'REDIRECT_TO_URL', 'REDIRECT_PREFIX']),
        'Action on matching requests.',
      ),
    ),
    listener_id: givenRequired(uuid, 'Listener of the policy.', { sql: 'o.listener_id' }),
    redirect_pool_id: rendered(settable(uuid, null, 'Pool that receives matching requests.')),
    redirect_url: rendered(settable(httpUrl, null, 'URL that clients are redirected to.')),
    redirect_prefix: rendered(
      settable(httpUrl, null, 'URL prefix that clients are redirected to; the path of the request is appended.'),
    ),
    position: rendered(
      completed(settable(integer(1, LAST), LAST, 'Position among the policies of the listener, starting at 1.')),
    ),
    rules: derived(
      'json',
      idList('l7_rule', 'r', 'r.l7_policy_id = o.id'),
      'Rules of the policy; all must match. A policy without a rule does nothing.',
    ),
    created_at: shared.createdAt,
    updated_at: shared.updatedAt,
    tags: shared.tags,
    redirect_http_code: rendered(settable(redirectCode, null, 'HTTP status code of the redirect.')),
  },
})
