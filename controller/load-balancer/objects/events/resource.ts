import { derived } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { timestamp } from '../../schema/status.js'
import { shared } from '../shared-attributes.js'

/** What was asked of a load balancer, by whom, and what became of it. */
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
    loadbalancer_id: derived('uuid', 'o.load_balancer_id', 'Load balancer that it belongs to.'),
    kind: derived(
      'text',
      'o.kind',
      'requested: somebody asked for a change; applied: it took effect; failed: it did not, and is tried again; repaired: an amphora put right what had come to differ; closed: an amphora closed connections because a limit was reached.',
    ),
    created_at: shared.createdAt,
    updated_at: derived('time', timestamp('o.updated_at'), 'When it was seen last, when more than once.'),
    count: derived('integer', 'o.count', 'How often the same was seen without anything else between.'),
    generation: derived('integer', 'o.generation', 'Number of the load balancer’s change that it is about.'),
    action: derived('text', `o.detail->>'action'`, 'What was asked: create, update, delete, failover ...'),
    object_type: derived('text', `o.detail->>'object_type'`, 'Kind of object that was changed.'),
    object_id: derived('text', `o.detail->>'object_id'`, 'The object that was changed.'),
    changes: derived(
      'json',
      `o.detail->'changes'`,
      'Attributes and arguments as the request gave them; long ones are shortened.',
    ),
    user_id: derived('text', `o.detail->>'user_id'`, 'Who asked.'),
    user_name: derived('text', `o.detail->>'user_name'`, 'Name of who asked.'),
    user_project_id: derived('text', `o.detail->>'project_id'`, 'Project of the token.'),
    request_id: derived('text', `o.detail->>'request_id'`, 'Id of the request, which its answer and the log carry.'),
    milliseconds: derived('integer', `(o.detail->>'milliseconds')::integer`, 'How long the attempt took.'),
    amphorae: derived(
      'json',
      `coalesce(o.detail->'amphorae', '[]'::jsonb)`,
      'What was done to which amphora, how (by runtime commands, a reload ...), and why.',
    ),
    fault: derived('json', `o.detail->'fault'`, 'Why it failed.'),
    repair: derived(
      'json',
      `o.detail->'repair'`,
      'What was put right or closed, on which amphora, and when (`repaired_at`).',
    ),
  },
})
