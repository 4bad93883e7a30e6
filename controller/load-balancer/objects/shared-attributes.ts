import { derived, given, rendered, settable } from '../schema/attributes.js'
import { childStatus, switchOperatingStatus, timestamp } from '../schema/status.js'
import { boolean, tags, text } from '../schema/values.js'

export const PROJECT = 'Project that it belongs to; on creation, the token’s own when not given.'
export const TENANT = 'The same as project_id.'
export const PROVISIONING_STATUS =
  'How far the last change is: PENDING_* until it is in effect, ERROR when it failed and is tried again.'
export const OPERATING_STATUS = 'How it fares at the moment.'

/** Attributes that several kinds of objects have. Each kind has them in an order of its own, which is that of its answers. */
export const shared = {
  id: derived('uuid', 'o.id', 'Identifier, given by the service.'),
  name: settable(text(255), '', 'Name for people; need not be unique.'),
  description: settable(text(255), '', 'Text for people.'),
  adminStateUp: rendered(settable(boolean, true, 'False switches it off.', { null: { value: false } })),
  tags: settable(tags, [], 'Free words to find objects by; an update replaces them all.', { null: 'keep' }),
  createdAt: derived('time', timestamp('o.created_at'), 'When it was made (UTC).'),
  updatedAt: derived('time', timestamp('o.updated_at'), 'When it was last changed (UTC); null until then.'),
  projectId: given(text(36), null, PROJECT, { sql: 'o.project_id' }),
  tenantId: given(text(36), null, TENANT, { sql: 'o.project_id', filterable: false }),
  provisioningStatus: derived('text', childStatus('o'), PROVISIONING_STATUS),
  operatingStatus: derived('text', 'o.operating_status', OPERATING_STATUS),
  /** Of objects that can only be switched on and off: they report nothing. */
  switchStatus: derived('text', switchOperatingStatus('o'), OPERATING_STATUS),
}
