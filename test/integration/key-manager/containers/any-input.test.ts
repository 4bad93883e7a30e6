import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import {
  everyRole,
  type Family,
  mostly,
  record,
  text,
  tryFamily,
} from '../../../support/inputs/key-manager-any-input.js'

const api = await startTestKeyManager()
t.teardown(api.stop)
const made = async (path: string, body: unknown) => {
  const reply = await api.ask('POST', path, body, { token: everyRole })
  return String(Object.values(reply.body)[0])
}
const secrets = await Promise.all(Array.from({ length: 4 }, () => api.store({}, everyRole)))
const secretRefs = secrets.map(id => `${api.url}/v1/secrets/${id}`)
const secret_refs = secretRefs.slice(1, 2).map(secret_ref => ({ secret_ref }))
const containers = await Promise.all(
  Array.from({ length: 3 }, () => made('/v1/containers', { type: 'generic', name: 'c', secret_refs })),
)
const container = String(containers[0]).slice(-36)
const transportKey = (await made('/v1/transport_keys', { plugin_name: 'p', transport_key: 'k' })).slice(-36)
const consumer = { name: 'lb', URL: 'https://a.example' }
const registered = await api.ask('POST', `/v1/containers/${container}/consumers`, consumer, { token: everyRole })
const consumerId = String(registered.headers.get('location')).slice(-36)

const OTHER_PROJECT = 'another project'
await api.ask('PUT', `/v1/project-quotas/${OTHER_PROJECT}`, { project_quotas: {} }, { token: everyRole })

const name = fc.oneof(text, fc.constantFrom('a', 'b', 'private_key', 'public_key', 'certificate', 'intermediates'))
const secretRef = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(...secretRefs) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(`${api.url}/`, `${api.url}/v1/secrets/${randomUUID()}`, 'x', '//', 'http://['),
  },
)
const reference = record({ name, secret_ref: secretRef }, ['secret_ref'])
const acl = record({
  read: record({ users: fc.array(mostly(text), { maxLength: 3 }), 'project-access': fc.boolean() }),
})
const limit = fc.oneof(fc.integer(), fc.constantFrom(null, -1, 0, 1e20, 1.5))
const consumers = fc.oneof(fc.constant(consumer), record({ name: text, URL: text }, ['name', 'URL']))

const removed = fc.oneof(
  fc.constantFrom(...secretRefs).map(secret_ref => ({ secret_ref })),
  reference,
)

const bodies: readonly (readonly [RegExp, fc.Arbitrary<unknown>])[] = [
  [
    / \/v1\/containers$/,
    record(
      {
        type: fc.constantFrom('generic', 'rsa', 'certificate'),
        name,
        secret_refs: fc.array(reference, { maxLength: 3 }),
      },
      ['type'],
    ),
  ],
  [/^POST .*\/secrets$/, reference],
  [/^DELETE .*\/secrets$/, removed],
  [/\/consumers$/, consumers],
  [/\/acl$/, acl],
  [
    /project-quotas/,
    record(
      { project_quotas: record({ secrets: limit, orders: limit, containers: limit, consumers: limit, cas: limit }) },
      ['project_quotas'],
    ),
  ],
  [/transport_keys/, record({ plugin_name: text, transport_key: text }, ['plugin_name', 'transport_key'])],
]

const certain: Family['certain'] = {
  'GET /v1/containers/:id/consumers/:consumer': {
    path: `/v1/containers/${container}/consumers/${consumerId}`,
    sent: {},
  },
  'DELETE /v1/containers/:id/consumers': { path: `/v1/containers/${container}/consumers`, sent: { body: consumer } },
  'DELETE /v1/containers/:id/secrets': {
    path: `/v1/containers/${container}/secrets`,
    sent: { body: secret_refs[0] },
  },
}

tryFamily(t, {
  api,
  pattern: /\/v1\/(containers|quotas|project-quotas|transport_keys|secrets\/:id\/acl)/,
  last: ['DELETE /v1/containers/:id'],
  bodies,
  present: {
    ':consumer': [consumerId],
    ':project': [OTHER_PROJECT],
    secrets: secrets.slice(0, 2),
    containers: [container, ...containers.slice(1).map(ref => ref.slice(-36))],
    transport_keys: [transportKey],
  },
  certain,
})
