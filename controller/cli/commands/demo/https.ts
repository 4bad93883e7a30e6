import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import type { ApiClient } from '../../api-client.js'
import { awaitCertificate, findOrder, placeOrder } from '../../certificates/order.js'
import { OperatorError } from '../../operator-error.js'
import { type DemoLoadBalancer, ensureHttpsListener } from './load-balancer.js'
import type { Expected } from './traffic.js'

/** In a domain that never exists elsewhere (RFC 2606). */
const HOST = 'krater-demo.test'
const ORDER = 'krater-demo'
const ORDER_SECONDS = 60

export type DemoSite = { url: string; expected: Expected; caFile: string }

/** Orders a certificate of the internal CA, unless a former demo did, and serves it in front of the demo's pool. */
export async function ensureHttpsSite(
  directory: string,
  api: ApiClient,
  balancer: DemoLoadBalancer,
  report: (line: string, milliseconds: number) => void,
): Promise<DemoSite> {
  const started = performance.now()
  const former = await findOrder(api, ORDER)
  const order = former ?? (await placeOrder(api, { names: [HOST], name: ORDER, ca: null }))
  const ref = await awaitCertificate(api, order, ORDER_SECONDS, () => undefined)
  if (former === null) report('certificate ordered and issued', performance.now() - started)
  const ca = await readRoot(api)
  const caFile = join(directory, 'demo-ca.pem')
  writeFileSync(caFile, ca)
  return { url: await ensureHttpsListener(api, balancer, ref, report), expected: { name: HOST, ca }, caFile }
}

const found = z.object({ cas: z.array(z.string()) })
const authority = z.object({ meta: z.array(z.record(z.string(), z.string())) })

/** PEM of the internal root CA. */
async function readRoot(api: ApiClient): Promise<string> {
  const { cas } = found.parse(await api.request('key-manager', 'GET', '/v1/cas?plugin_ca_id=root'))
  const [ref] = cas
  const shown = ref === undefined ? null : await api.request('key-manager', 'GET', `/v1/cas/${ref.slice(-36)}`)
  const { meta } = shown === null ? { meta: [] } : authority.parse(shown)
  const certificate = meta.find(entry => entry.ca_signing_certificate !== undefined)?.ca_signing_certificate
  if (certificate === undefined) throw new OperatorError('The project may not use the internal root CA.')
  return certificate
}
