import type { Test } from 'tap'
import type { Json, Reply } from '../clients/json-answers.js'
import { SUBNET, type TestApi } from '../clients/load-balancer-api.js'

/** A subnet that the noop network driver treats as IPv6. */
export const IPV6_SUBNET = '00000006-1111-4111-8111-111111111111'
/** A reference to a certificate. */
export const REF = 'https://keys.test/v1/secrets/9691cd7d-d516-4a8e-902e-112909ae987d'
/** An API whose provider accepts everything valid. */
export const NOOP = { providers: ['noop_driver'], settings: { default_provider: 'noop_driver' } }
/** The default cipher list; test/integration/provider/default-tls.test.ts looks at all of it. */
export const INTERMEDIATE = /^TLS_AES_128_GCM_SHA256:.*:ECDHE-RSA-CHACHA20-POLY1305$/
export const INVALID = /^Validation failure: /

/** Requests about one load balancer: `make` fails the test unless it succeeds, `tryTo` returns any answer. */
export async function workshop(api: TestApi, loadbalancer: object = {}) {
  let port = 1000
  const tryTo = (kind: string, body: object) => api.ask('POST', `/v2/lbaas/${kind}s`, { [kind]: body })
  const make = async (kind: string, body: object): Promise<Json & { id: string }> => {
    const reply = await tryTo(kind, body)
    if (reply.status !== 201) throw new Error(`${kind} ${JSON.stringify(body)}: ${reply.status} ${reply.text}`)
    return reply.body[kind] as Json & { id: string }
  }
  const { id: lb } = await make('loadbalancer', { vip_subnet_id: SUBNET, ...loadbalancer })
  const listener = (body: object) => tryTo('listener', { loadbalancer_id: lb, protocol_port: ++port, ...body })
  const pool = (body: object) => tryTo('pool', { loadbalancer_id: lb, lb_algorithm: 'ROUND_ROBIN', ...body })
  const made = async (asked: Promise<Reply>, kind: string): Promise<Json & { id: string }> => {
    const reply = await asked
    if (reply.status !== 201) throw new Error(`${kind}: ${reply.status} ${reply.text}`)
    return reply.body[kind] as Json & { id: string }
  }
  const put = (kind: string, id: string, body: object) => api.ask('PUT', `/v2/lbaas/${kind}s/${id}`, { [kind]: body })
  return { lb, tryTo, make, listener, pool, made, put }
}

/** A body, and the text of its refusal (400) or the expected part of the answer. */
export type Row = readonly [body: object, expected: RegExp | object]

export function check(t: Test, kind: string, reply: Reply, [body, expected]: Row, success: number): void {
  const text = JSON.stringify(body)
  if (expected instanceof RegExp) {
    t.match(
      reply,
      { status: 400, body: { faultcode: 'Client', faultstring: expected, debuginfo: null } },
      `${kind} ${text}: ${reply.status} ${reply.text.slice(0, 200)}`,
    )
  } else t.match(reply, { status: success, body: { [kind]: expected } }, `${kind} ${text}`)
}
