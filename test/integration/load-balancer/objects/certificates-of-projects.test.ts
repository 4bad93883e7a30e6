import { randomUUID } from 'node:crypto'
import t from 'tap'
import { createKraterSource } from '../../../../controller/certificates/krater/certificate-source.js'
import { createChecks } from '../../../../controller/inspection/checks.js'
import { createLog } from '../../../../controller/log/log.js'
import { FOREIGN, tokenOf } from '../../../support/clients/callers.js'
import { at, type Reply } from '../../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { SUBNET, startTestApi } from '../../../support/clients/load-balancer-api.js'
import { buildInspectorThread, makeBundle, makePair, makeRevocationList } from '../../../support/inputs/certificates.js'
import { NOOP } from '../../../support/inputs/load-balancer-options.js'

/** One project's secrets and containers in another project's load balancers, with the real key manager's verdict. */

const checks = createChecks({ inspectionMilliseconds: 5000, program: await buildInspectorThread(t.testdir({})) })
const keyManager = await startTestKeyManager({}, undefined, undefined, checks)
t.teardown(keyManager.stop)
const source = createKraterSource({
  keyManager: { url: keyManager.url, security: { insecure: false }, connectTimeoutSeconds: 2, answerSeconds: 10 },
  loadBalancerUrl: id => `http://load-balancer.test/v2/lbaas/loadbalancers/${id}`,
  log: createLog('test', 'silent'),
})
t.teardown(source.close)
const api = await startTestApi({ ...NOOP, certificates: source })
t.teardown(api.stop)

/** Project A is the default one. */
const B = tokenOf('member,of-b', FOREIGN)
const asB = (method: string, path: string, body: object) => api.ask(method, `/v2/lbaas/${path}`, body, B)
const made = async (kind: string, body: object): Promise<string> => {
  const reply = await asB('POST', `${kind}s`, { [kind]: body })
  if (reply.status !== 201) throw new Error(`${kind}: ${reply.text}`)
  return String(at(reply.body, kind, 'id'))
}

const refOf = (kind: string, id: string) => `${keyManager.url}/v1/${kind}/${id}`
const root = makePair({ subject: '/CN=root' })
const web = makePair({ issuer: root })
const storeText = async (payload: string, token?: string) =>
  refOf('secrets', await keyManager.store({ payload, payload_content_type: 'text/plain' }, token))
const storeBundle = async (token?: string) => {
  const payload = makeBundle(web).toString('base64')
  const encoding = { payload_content_type: 'application/octet-stream', payload_content_encoding: 'base64' }
  return refOf('secrets', await keyManager.store({ payload, ...encoding }, token))
}
const own = {
  bundle: await storeBundle(B),
  authority: await storeText(root.certificate, B),
}

type Foreign = { ref: string; parts: string[] }

async function storeContainer(): Promise<Foreign> {
  const parts = [await storeText(web.certificate), await storeText(web.privateKey)]
  const secret_refs = ['certificate', 'private_key'].map((name, at) => ({ name, secret_ref: parts[at] }))
  const { body } = await keyManager.ask('POST', '/v1/containers', { type: 'certificate', secret_refs })
  return { ref: String(body.container_ref), parts }
}

const secret = (ref: string): Foreign => ({ ref, parts: [] })
const certificates = [async () => secret(await storeBundle()), storeContainer]
const authorities = [async () => secret(await storeText(root.certificate))]
const lists = [async () => secret(await storeText(makeRevocationList(root)))]

const HTTPS = { protocol: 'TERMINATED_HTTPS', default_tls_container_ref: own.bundle }
const POOL = { protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', tls_enabled: true }
const client = { client_authentication: 'OPTIONAL' }

/** Where a listener or pool refers to the key manager, and what project A has that would fit there. */
const PLACES: {
  kind: 'listener' | 'pool'
  what: string
  body: (ref: string) => object
  of: (() => Promise<Foreign>)[]
}[] = [
  {
    ...{ kind: 'listener', what: 'default_tls_container_ref', of: certificates },
    body: ref => ({ ...HTTPS, default_tls_container_ref: ref }),
  },
  {
    ...{ kind: 'listener', what: 'sni_container_refs', of: certificates },
    body: ref => ({ ...HTTPS, sni_container_refs: [own.bundle, ref] }),
  },
  {
    ...{ kind: 'listener', what: 'client_ca_tls_container_ref', of: authorities },
    body: ref => ({ ...HTTPS, ...client, client_ca_tls_container_ref: ref }),
  },
  {
    ...{ kind: 'listener', what: 'client_crl_container_ref', of: lists },
    body: ref => ({
      ...{ ...HTTPS, ...client, client_ca_tls_container_ref: own.authority },
      client_crl_container_ref: ref,
    }),
  },
  { kind: 'pool', what: 'tls_container_ref', of: certificates, body: ref => ({ ...POOL, tls_container_ref: ref }) },
  {
    ...{ kind: 'pool', what: 'ca_tls_container_ref', of: authorities },
    body: ref => ({ ...POOL, ca_tls_container_ref: ref }),
  },
  {
    ...{ kind: 'pool', what: 'crl_container_ref', of: lists },
    body: ref => ({ ...POOL, ca_tls_container_ref: own.authority, crl_container_ref: ref }),
  },
]

const balancer = await made('loadbalancer', { vip_subnet_id: SUBNET })
let port = 2000

/** The ways to refer to something. Each is tried with a body that a place makes. */
const FORMS: Record<string, (kind: 'listener' | 'pool', body: object) => Promise<Reply>> = {
  create: (kind, body) =>
    asB('POST', `${kind}s`, {
      [kind]: { loadbalancer_id: balancer, ...body, ...(kind === 'listener' && { protocol_port: ++port }) },
    }),
  update: async (kind, body) => {
    const plain = kind === 'listener' ? { ...HTTPS, protocol_port: ++port } : POOL
    const id = await made(kind, { loadbalancer_id: balancer, ...plain })
    const { protocol: _, ...changes } = body as { protocol?: string }
    return asB('PUT', `${kind}s/${id}`, { [kind]: changes })
  },
  'whole tree': (kind, body) => {
    const listener = { protocol: 'HTTP', protocol_port: 80, default_pool: { name: 'p', ...body } }
    return asB('POST', 'loadbalancers', {
      loadbalancer: {
        vip_subnet_id: SUBNET,
        listeners: [kind === 'pool' ? listener : { protocol_port: 443, ...body }],
      },
    })
  },
}

const share = async ({ ref, parts }: Foreign) => {
  for (const path of [ref, ...parts].map(one => new URL(one).pathname)) {
    const reply = await keyManager.ask('PUT', `${path}/acl`, { read: { users: ['user-member,of-b'] } })
    if (reply.status !== 200) throw new Error(reply.text)
  }
}

for (const { kind, what, body, of } of PLACES) {
  t.test(`${kind}: ${what} to what another project stored`, async t => {
    for (const [form, send] of Object.entries(FORMS)) {
      for (const store of of) {
        const foreign = await store()
        const collection = new URL(foreign.ref).pathname.split('/')[2] ?? ''
        const absent = refOf(collection, randomUUID())
        const [refused, missing] = [await send(kind, body(foreign.ref)), await send(kind, body(absent))]
        const place = `${form}, ${collection}`
        t.equal(refused.status, missing.status, place)
        t.ok(refused.status >= 400 && refused.status < 500, `${place}: ${refused.status}`)
        t.match(refused.text, foreign.ref)
        t.equal(
          refused.text.replaceAll(foreign.ref, '*').replaceAll(/"request_id":"[^"]*"/g, ''),
          missing.text.replaceAll(absent, '*').replaceAll(/"request_id":"[^"]*"/g, ''),
          `${place}: the answer is the same when there is none`,
        )
        const path = new URL(foreign.ref).pathname
        t.same((await keyManager.ask('GET', path)).body.consumers ?? [], [], `${place}: nothing is bound`)
        await share(foreign)
        const allowed = await send(kind, body(foreign.ref))
        t.ok(allowed.status < 300, `${place}, with an ACL: ${allowed.status} ${allowed.text.slice(0, 200)}`)
      }
    }
  })
}
