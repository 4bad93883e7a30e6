import { derived, given, rendered, settable } from '../schema/attributes.js'
import { childStatus, operatingReason, switchOperatingStatus, timestamp } from '../schema/status.js'
import { boolean, tags, text } from '../schema/values.js'

export const PROJECT = 'Project of the object; defaults to the project of the token.'
export const TENANT = 'Alias of project_id.'
export const PROVISIONING_STATUS =
  'Status of the last change: PENDING_* until it is applied, ERROR if it failed and will be retried.'
export const OPERATING_STATUS = 'Current operating status.'
export const OPERATING_REASON = 'Why operating_status is what it is, and since when; null if all is well.'

/** Attributes that several resources share. Each resource lists them in the order of its responses. */
export const shared = {
  id: derived('uuid', 'o.id', 'Identifier, set by the service.'),
  name: settable(text(255), '', 'Human-readable name; need not be unique.'),
  description: settable(text(255), '', 'Human-readable description.'),
  adminStateUp: rendered(
    settable(boolean, true, 'Administrative state; false disables the object.', { null: { value: false } }),
  ),
  tags: settable(tags, [], 'Tags for filtering; an update replaces all of them.', { null: 'keep' }),
  createdAt: derived('time', timestamp('o.created_at'), 'Creation time (UTC).'),
  updatedAt: derived(
    'time',
    timestamp('o.updated_at'),
    'Time (UTC) of the last update: when it was requested or, since then, took effect.',
  ),
  projectId: given(text(36), null, PROJECT, { sql: 'o.project_id' }),
  tenantId: given(text(36), null, TENANT, { sql: 'o.project_id', filterable: false }),
  provisioningStatus: derived('text', childStatus('o'), PROVISIONING_STATUS),
  operatingStatus: derived('text', 'o.operating_status', OPERATING_STATUS),
  /** @param label of the object, in lower case */
  operatingReason: (label: string) => derived('json', operatingReason('o', label), OPERATING_REASON),
  /** For objects that report no status: it follows admin_state_up. */
  switchStatus: derived('text', switchOperatingStatus('o'), OPERATING_STATUS),
}
