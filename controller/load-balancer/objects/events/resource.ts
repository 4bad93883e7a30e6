import { derived } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { timestamp } from '../../schema/status.js'
import { shared } from '../shared-attributes.js'

/** The history of a load balancer: requests, their senders, and results. */
export const event = defineResource({
  label: 'Event',
  singular: 'event',
  plural: 'events',
  table: 'load_balancer_event',
  source: 'load_balancer_event o JOIN load_balancer lb ON lb.id = o.load_balancer_id',
  project: 'lb.project_id',
  tagged: false,
  attributes: {
    id: shared.id,
    loadbalancer_id: derived('uuid', 'o.load_balancer_id', 'Load balancer of the event.'),
    kind: derived(
      'text',
      'o.kind',
      'requested: a request for a change; applied: the change took effect; failed: it did not and is retried; repaired: an amphora repaired a deviation from its configuration; closed: an amphora closed connections because a limit was reached; status_changed: the operating status of an object changed; certificate: something about the certificates that listeners serve.',
    ),
    created_at: shared.createdAt,
    updated_at: derived('time', timestamp('o.updated_at'), 'Time of the latest occurrence, if there is more than one.'),
    count: derived('integer', 'o.count', 'Number of consecutive identical events.'),
    generation: derived('integer', 'o.generation', 'Generation of the load balancer that the event is about.'),
    action: derived('text', `o.detail->>'action'`, 'Requested action: create, update, delete, failover ...'),
    object_type: derived('text', `o.detail->>'object_type'`, 'Type of the changed object.'),
    object_id: derived('text', `o.detail->>'object_id'`, 'Id of the changed object.'),
    changes: derived(
      'json',
      `o.detail->'changes'`,
      'Attributes and arguments of the request; long values are shortened.',
    ),
    user_id: derived('text', `o.detail->>'user_id'`, 'User who sent the request.'),
    user_name: derived('text', `o.detail->>'user_name'`, 'Name of that user.'),
    user_project_id: derived('text', `o.detail->>'project_id'`, 'Project of the token.'),
    request_id: derived('text', `o.detail->>'request_id'`, 'Id of the request, as in its response.'),
    milliseconds: derived(
      'integer',
      `(o.detail->>'milliseconds')::integer`,
      'Duration of the attempt in milliseconds.',
    ),
    amphorae: derived(
      'json',
      `coalesce(o.detail->'amphorae', '[]'::jsonb)`,
      'Action on each amphora, how it was done (runtime commands, a reload ...), and why.',
    ),
    status_change: derived(
      'json',
      `o.detail->'status_change'`,
      'Operating status before (`from`) and after (`to`), and the reason.',
    ),
    fault: derived('json', `o.detail->'fault'`, 'Reason of the failure.'),
    certificate: derived(
      'json',
      `o.detail->'certificate'`,
      'What is to be known of certificates: a word (`notice`), a sentence, and the amphora, if it is about one.',
    ),
    repair: derived(
      'json',
      `o.detail->'repair'`,
      'What was repaired or closed, on which amphora, and when (`repaired_at`).',
    ),
  },
})
