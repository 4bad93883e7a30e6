import type * as z from 'zod'
import { formOf, objectOf, type Schema } from '../../api/schema.js'
import { shared } from '../objects/shared-attributes.js'
import type { Attribute } from '../schema/attributes.js'
import { type Resource, sqlOf } from '../schema/resource.js'
import { OPERATING_STATUSES } from '../schema/status.js'
import type { Kind } from '../schema/values.js'

const described = (form: Schema, about: string | undefined): Schema =>
  about === undefined ? form : { ...form, description: about }

const KINDS: Readonly<Record<Kind, Schema>> = {
  text: { type: 'string' },
  uuid: { type: 'string', format: 'uuid' },
  integer: { type: 'integer' },
  number: { type: 'number' },
  boolean: { type: 'boolean' },
  time: { type: 'string', pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d$', examples: ['2026-01-31T12:00:00'] },
  json: {},
}

const FAULT = objectOf(
  {
    code: { type: 'string' },
    text: { type: 'string' },
    since: KINDS.time,
    retry_at: { ...KINDS.time, type: ['string', 'null'] },
  },
  ['code', 'text'],
)

const REASON = objectOf({ text: { type: 'string' }, since: { ...KINDS.time, type: ['string', 'null'] } }, [
  'text',
  'since',
])

const STATUS = { type: 'string', enum: OPERATING_STATUSES }

/** Schemas of response-only attributes whose kind is not specific enough. */
const FORMS: Readonly<Record<string, Schema>> = {
  provisioning_status: {
    type: 'string',
    enum: ['ACTIVE', 'PENDING_CREATE', 'PENDING_UPDATE', 'PENDING_DELETE', 'ERROR'],
  },
  operating_status: STATUS,
  operating_reason: REASON,
  status_change: objectOf({ from: STATUS, to: STATUS, reason: { type: ['string', 'null'] } }, ['from', 'to', 'reason']),
  fault: FAULT,
  changes: { type: ['object', 'null'] },
  amphorae: {
    type: 'array',
    items: objectOf(
      {
        amphora_id: KINDS.uuid,
        action: { type: 'string', enum: ['created', 'restarted', 'replugged', 'configured', 'upgraded', 'deleted'] },
        how: { type: 'string' },
        reason: { type: 'string' },
      },
      ['amphora_id', 'action'],
    ),
  },
}

const ID_LIST: Schema = { type: 'array', items: objectOf({ id: described(KINDS.uuid, shared.id.about) }) }

/** Response attributes that are never null. */
const NEVER_NULL: ReadonlySet<string> = new Set([
  ...[
    'id',
    'created_at',
    'provisioning_status',
    'operating_status',
    'kind',
    'count',
    'generation',
    'project_id',
    'tenant_id',
  ],
])

/** Schema of an object in responses. */
export function answerSchema(resource: Resource): Schema {
  const shown = Object.entries(resource.attributes).filter(([name, attribute]) => sqlOf(name, attribute) !== null)
  const properties = shown.map(([name, attribute]) => [name, shownForm(name, attribute)] as const)
  const always = shown.filter(([, attribute]) => !attribute.omittedWhenNull).map(([name]) => name)
  return { ...objectOf(Object.fromEntries(properties), always), description: `${resource.label}.` }
}

function shownForm(name: string, attribute: Attribute): Schema {
  const form =
    FORMS[name] ?? attribute.type?.jsonSchema ?? (attribute.kind === 'json' ? ID_LIST : KINDS[attribute.kind])
  const always = attribute.required || NEVER_NULL.has(name) || (attribute.type !== null && attribute.default !== null)
  const isList = form.type === 'array'
  return described(always || isList ? form : nullable(form), attribute.about)
}

/** Key of a body -> resource of the nested objects. */
const NESTED: Readonly<Record<string, string>> = {
  listeners: 'listeners',
  pools: 'pools',
  default_pool: 'pools',
  redirect_pool: 'pools',
  members: 'members',
  healthmonitor: 'healthmonitors',
  l7policies: 'l7policies',
  rules: 'rules',
}

/** Descriptions of keys that only requests have. */
const NESTED_ALONE: Readonly<Record<string, string>> = {
  default_pool: 'A new default pool, or the name of one that the same request defines.',
  redirect_pool: 'A new pool to redirect to, or the name of one that the same request defines.',
  healthmonitor: 'Health monitor of the pool.',
}

/**
 * Schema of a request body, generated from the zod schema that parses it. Parts that zod implements as
 * functions (null, defaults) come from the attributes.
 * @param resources by the names of their collections, for nested objects
 */
export function requestSchema(
  schema: z.ZodType,
  resource: Resource,
  mode: 'create' | 'update',
  resources: Readonly<Record<string, Resource>>,
): Schema {
  return completed(formOf(schema), resource, mode, resources)
}

function completed(
  form: Schema,
  resource: Resource,
  mode: 'create' | 'update',
  resources: Readonly<Record<string, Resource>>,
): Schema {
  const properties: Record<string, Schema> = {}
  for (const [name, property] of Object.entries(Object(form.properties) as Record<string, Schema>)) {
    const attribute = resource.attributes[name]
    const nested = resources[NESTED[name] ?? '']
    if (attribute !== undefined && attribute.input !== 'none') {
      properties[name] = described(settableForm(property, attribute, mode), attribute.about)
    } else {
      const inside = nested === undefined ? property : withNested(property, nested, mode, resources)
      properties[name] = described(inside, attribute?.about ?? NESTED_ALONE[name])
    }
  }
  return { ...form, properties }
}

function settableForm(form: Schema, attribute: Attribute, mode: 'create' | 'update'): Schema {
  const takesNull = !attribute.required || (typeof attribute.null === 'object' && mode === 'create')
  const withNull = takesNull ? nullable(form) : form
  return mode === 'create' && !attribute.required ? { ...withNull, default: attribute.default } : withNull
}

/** Completes the schemas of nested objects, also in lists and alternatives. */
function withNested(
  form: Schema,
  resource: Resource,
  mode: 'create' | 'update',
  resources: Readonly<Record<string, Resource>>,
): Schema {
  if (Array.isArray(form.anyOf)) {
    return { ...form, anyOf: form.anyOf.map(choice => withNested(choice, resource, mode, resources)) }
  }
  if (form.type === 'array') return { ...form, items: withNested(Object(form.items), resource, mode, resources) }
  return form.type === 'object' ? completed(form, resource, mode, resources) : form
}

export function nullable(form: Schema): Schema {
  if (typeof form.type !== 'string') return form
  return {
    ...form,
    type: [form.type, 'null'],
    ...(Array.isArray(form.enum) ? { enum: [...form.enum, null] } : {}),
    ...(Array.isArray(form.anyOf) ? { anyOf: [...form.anyOf, { type: 'null' }] } : {}),
  }
}
