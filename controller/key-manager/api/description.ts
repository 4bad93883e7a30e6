import { type DescriptionTexts, openApiDocument } from '../../api/description/document.js'
import type { Route } from '../../api/route.js'
import { type OpenApi, objectOf, ref, type Schema } from '../../api/schema.js'
import type { Operation } from '../rights.js'
import type { ApiCaller, ApiService } from './dialect.js'
import { EXAMPLES } from './examples.js'

type KeyManagerRoute = Route<ApiService, ApiCaller, Operation>

/** The API as an OpenAPI document. Pure. */
export const keyManagerDescription = (routes: readonly KeyManagerRoute[]): OpenApi => openApiDocument(routes, TEXTS)

const text: Schema = { type: 'string' }
const textOrNull: Schema = { type: ['string', 'null'] }
const integer: Schema = { type: 'integer' }
const reference: Schema = { type: 'string', format: 'uri', description: 'URL of an object of this API.' }
const listOf = (items: Schema): Schema => ({ type: 'array', items })

/** One page of a list. */
const page = (key: string, items: Schema): Schema =>
  objectOf({ [key]: listOf(items), total: integer, previous: reference, next: reference }, [key, 'total'])

const recorded = { created: text, updated: text, status: text }
const resourceConsumer = { service: text, resource_type: text, resource_id: text }
const serviceConsumer = { name: text, URL: text }
const kinds = ['secrets', 'orders', 'containers', 'consumers', 'cas']

const SCHEMAS: Readonly<Record<string, Schema>> = {
  reference,
  secret: objectOf(
    {
      content_types: { type: 'object', additionalProperties: text },
      ...recorded,
      name: textOrNull,
      secret_type: text,
      expiration: textOrNull,
      algorithm: textOrNull,
      bit_length: { type: ['integer', 'null'] },
      mode: textOrNull,
      creator_id: textOrNull,
      consumers: listOf(objectOf(resourceConsumer)),
      secret_ref: reference,
    },
    ['created', 'updated', 'status', 'name', 'secret_type', 'secret_ref'],
  ),
  secrets: page('secrets', ref('secret')),
  metadata_pair: objectOf({ key: text, value: text }),
  secret_consumer: objectOf({ ...recorded, ...resourceConsumer }),
  secret_consumers: page('consumers', ref('secret_consumer')),
  container: objectOf({
    ...recorded,
    name: textOrNull,
    type: text,
    creator_id: textOrNull,
    secret_refs: listOf(objectOf({ name: textOrNull, secret_ref: reference })),
    consumers: listOf(objectOf(serviceConsumer)),
    container_ref: reference,
  }),
  containers: page('containers', ref('container')),
  container_consumer: objectOf({ ...recorded, ...serviceConsumer }),
  container_consumers: page('consumers', ref('container_consumer')),
  acl: objectOf({
    read: objectOf({ 'project-access': { type: 'boolean' }, users: listOf(text), created: text, updated: text }, [
      'project-access',
    ]),
  }),
  order: objectOf(
    {
      ...recorded,
      type: text,
      meta: { type: 'object' },
      creator_id: textOrNull,
      order_ref: reference,
      secret_ref: reference,
      container_ref: reference,
      sub_status: text,
      sub_status_message: text,
      error_status_code: text,
      error_reason: text,
    },
    ['created', 'updated', 'status', 'type', 'meta', 'creator_id', 'order_ref'],
  ),
  orders: page('orders', ref('order')),
  certificate: objectOf({
    container_ref: reference,
    order_ref: reference,
    ca_ref: reference,
    names: listOf(text),
    issuer: text,
    serial: text,
    not_before: text,
    not_after: text,
    version: integer,
    former_version: { type: ['integer', 'null'] },
    renew: { type: 'boolean' },
    renew_key: { type: 'boolean' },
    next_renewal_at: textOrNull,
    attempts: integer,
    last_attempt_at: textOrNull,
    last_error: textOrNull,
  }),
  certificates: page('certificates', ref('certificate')),
  certificate_event: objectOf({ at: text, kind: text, version: integer, days_left: integer, message: text }),
  certificate_events: page('events', ref('certificate_event')),
  limits: objectOf(
    Object.fromEntries(
      kinds.map(kind => [kind, { type: ['integer', 'null'], description: 'A negative number means no limit.' }]),
    ),
  ),
  project_quotas: page('project_quotas', objectOf({ project_id: text, project_quotas: ref('limits') })),
  transport_key: objectOf({ ...recorded, transport_key_ref: reference, plugin_name: text, transport_key: text }),
  transport_keys: page('transport_keys', reference),
  ca: {
    type: 'object',
    description: 'A certificate authority: its back end, its name and references to its certificate.',
  },
  cas: page('cas', reference),
  acme_account: objectOf({
    key_id: text,
    name: textOrNull,
    created: text,
    creator_id: text,
    status: text,
    revoked: textOrNull,
    accounts: integer,
  }),
  acme_accounts: page('acme_accounts', ref('acme_account')),
  secret_store: objectOf({
    ...recorded,
    name: text,
    secret_store_ref: reference,
    global_default: { type: 'boolean' },
    crypto_plugin: textOrNull,
    secret_store_plugin: text,
  }),
  fault: objectOf({ code: integer, title: text, description: textOrNull }),
  version_fault: {
    anyOf: [
      objectOf({ code: integer, title: text, description: textOrNull }),
      objectOf({ code: text, title: text, message: text }),
    ],
  },
  unauthorized: objectOf({
    code: integer,
    title: text,
    description: text,
    error: objectOf({ code: integer, title: text, message: text }),
  }),
}

const TEXTS: DescriptionTexts<KeyManagerRoute> = {
  title: 'Key Manager',
  version: '1.2',
  summary: 'Secrets, containers of secrets, and orders for keys and certificates.',
  description:
    'The header OpenStack-API-Version (key-manager 1.0 to 1.2, or latest) selects a microversion: 1.1 shows the consumers of secrets; 1.2 refuses to delete a secret with consumers.',
  groups: {
    versions: 'Versions of this API.',
    secrets: 'Values that are stored encrypted.',
    metadata: 'Keys and values set by users, without a meaning to the service.',
    'consumers of secrets': 'Resources of services that use a secret.',
    'consumers of containers': 'Services that use a container.',
    containers: 'Secrets that belong together, such as a certificate and its key.',
    'ACLs of secrets': 'Who may read a secret.',
    'ACLs of containers': 'Who may read a container.',
    orders: 'Keys and certificates that the service generates or issues.',
    certificates: 'Certificates that orders issued, and their renewals.',
    quotas: 'The maximum number of objects of each kind in a project.',
    'transport keys': 'Keys of back ends that accept wrapped payloads.',
    'certificate authorities': 'The CAs that sign ordered certificates.',
    'revocation lists': 'Lists of revoked certificates.',
    'ACME accounts': 'Keys with which ACME clients, such as certbot, create accounts of the project.',
    'secret stores': 'Where secrets are kept.',
  },
  schemas: SCHEMAS,
  errors: {
    400: ['The request is malformed or breaks a rule.', 'version_fault'],
    401: ['The token is missing or invalid.', 'unauthorized'],
    403: ['Policy does not allow this, or a quota is reached.', 'fault'],
    404: ['The object does not exist.', 'fault'],
    405: ['The path does not support the method.', 'fault'],
    406: ['The requested type or microversion is not supported.', 'version_fault'],
    409: ['The object is in use or already exists.', 'fault'],
    413: ['The payload is too large.', 'fault'],
    415: ['The type of the body is not supported.', 'fault'],
    429: ['The caller sends too many requests.', 'fault'],
    500: ['An unexpected error; report the request id.', 'fault'],
    503: ['The service is temporarily unavailable; try again.', 'fault'],
  },
  errorsOf: route => {
    if ('open' in route) return [400, 406, 500]
    const common = [400, 401, 403, 404, 406, 429, 500, 503]
    return route.method === 'GET' ? common : [...common, 409, 413, 415]
  },
  examples: EXAMPLES,
  rightOf: route => {
    if ('open' in route) return { sentence: '' }
    return { sentence: `The configured policy must allow this: ${route.right}.`, name: route.right }
  },
  pathParameter: name => {
    if (name === 'id' || name === 'consumer') return { description: 'Id of the object.', schema: text }
    return { description: `The ${name}.`, schema: text }
  },
}
