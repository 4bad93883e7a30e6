import type { Examples } from '../../api/description/examples.js'

const secret = '$KEY_MANAGER_URL/v1/secrets/$SECRET_ID'
const container = '$KEY_MANAGER_URL/v1/containers/$CONTAINER_ID'
const consumer = { service: 'backup', resource_type: 'archive', resource_id: '2d4e8a3c' }
const serviceConsumer = { name: 'shop', URL: 'https://shop.example.com' }

/** Examples of ACLs, which secrets and containers share. */
const aclOf = (path: string, reference: string): Examples['operations'] => ({
  [`GET ${path}/acl`]: { command: `acl get ${reference}` },
  [`PUT ${path}/acl`]: {
    json: { read: { users: ['$USER_ID'], 'project-access': false } },
    command: `acl submit ${reference} --user $USER_ID --no-project-access`,
  },
  [`PATCH ${path}/acl`]: {
    json: { read: { users: ['$USER_ID'] } },
    command: `acl user add ${reference} --user $USER_ID`,
  },
  [`DELETE ${path}/acl`]: { command: `acl delete ${reference}` },
})

export const EXAMPLES: Examples = {
  urlVariable: 'KEY_MANAGER_URL',
  segments: { key: 'owner', consumer: '$CONSUMER_ID' },
  operations: {
    'GET /crl/{id}': { segments: { id: '$CA_ID' } },
    'GET /v1/secrets': { query: 'limit=10', command: 'secret list --limit 10' },
    'POST /v1/secrets': {
      json: { name: 'greeting', payload: 'hello', payload_content_type: 'text/plain' },
      command: 'secret store --name greeting --payload hello --payload-content-type text/plain',
    },
    'GET /v1/secrets/{id}': { command: `secret get ${secret}` },
    'PUT /v1/secrets/{id}': {
      text: { type: 'text/plain', body: 'hello' },
      command: `secret update ${secret} hello`,
    },
    'DELETE /v1/secrets/{id}': { command: `secret delete ${secret}` },
    'GET /v1/secrets/{id}/payload': {
      headers: { Accept: 'text/plain' },
      command: `secret get ${secret} --payload`,
    },
    'POST /v1/secrets/{id}/consumers': { json: consumer },
    'DELETE /v1/secrets/{id}/consumers': { json: consumer },
    'PUT /v1/secrets/{id}/metadata': { json: { metadata: { owner: 'web', stage: 'test' } } },
    'POST /v1/secrets/{id}/metadata': { json: { key: 'contact', value: 'web@example.com' } },
    'PUT /v1/secrets/{id}/metadata/{key}': { json: { key: 'owner', value: 'shop' } },
    'GET /v1/containers': { command: 'secret container list' },
    'POST /v1/containers': {
      json: { name: 'shop', type: 'generic', secret_refs: [{ name: 'greeting', secret_ref: secret }] },
      command: `secret container create --name shop --type generic --secret greeting=${secret}`,
    },
    'GET /v1/containers/{id}': { command: `secret container get ${container}` },
    'DELETE /v1/containers/{id}': { command: `secret container delete ${container}` },
    'POST /v1/containers/{id}/secrets': { json: { name: 'again', secret_ref: secret } },
    'DELETE /v1/containers/{id}/secrets': { json: { name: 'again', secret_ref: secret } },
    'POST /v1/containers/{id}/consumers': { json: serviceConsumer },
    'DELETE /v1/containers/{id}/consumers': { json: serviceConsumer },
    ...aclOf('/v1/secrets/{id}', secret),
    ...aclOf('/v1/containers/{id}', container),
    'POST /v1/bindings/{load_balancer}': {
      json: {
        url: 'https://load-balancer.example/v2/lbaas/loadbalancers/$LOAD_BALANCER_ID',
        certificates: [container],
      },
    },
    'GET /v1/orders': { command: 'secret order list' },
    'POST /v1/orders': {
      json: { type: 'asymmetric', meta: { name: 'pair', algorithm: 'rsa', bit_length: 2048 } },
      command: 'secret order create asymmetric --name pair --algorithm rsa --bit-length 2048',
    },
    'GET /v1/orders/{id}': { command: 'secret order get $KEY_MANAGER_URL/v1/orders/$ORDER_ID' },
    'DELETE /v1/orders/{id}': { command: 'secret order delete $KEY_MANAGER_URL/v1/orders/$ORDER_ID' },
    'GET /v1/certificates/{id}': { segments: { id: '$CONTAINER_ID' } },
    'PATCH /v1/certificates/{id}': { segments: { id: '$CONTAINER_ID' }, json: { renew: true, renew_key: false } },
    'GET /v1/certificates/{id}/events': { segments: { id: '$CONTAINER_ID' } },
    'POST /v1/certificates/{id}/renew': { segments: { id: '$CONTAINER_ID' } },
    'POST /v1/certificates/{id}/rollback': { segments: { id: '$CONTAINER_ID' } },
    'PUT /v1/project-quotas/{project}': { json: { project_quotas: { secrets: 500, orders: 50 } } },
    'POST /v1/transport_keys': { json: { plugin_name: 'pkcs11', transport_key: '$TRANSPORT_KEY' } },
    'POST /v1/acme-accounts': { json: { name: 'web-1' } },
    'GET /v1/cas': { command: 'ca list' },
    'POST /v1/cas': {
      json: { name: 'Shop', subject_dn: 'CN=Shop CA,O=Example', parent_ca_ref: '$KEY_MANAGER_URL/v1/cas/$CA_ID' },
    },
    'GET /v1/cas/{id}': { command: 'ca get $KEY_MANAGER_URL/v1/cas/$CA_ID' },
  },
}
