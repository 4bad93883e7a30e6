import { connect, type TLSSocket } from 'node:tls'
import type { Test } from 'tap'
import type { ApiClient } from '../../../controller/cli/api-client.js'
import { askHttps } from '../clients/https-load.js'
import { storeSecret } from '../clients/stored-secret.js'
import { makeBundle, makePair, type Pair, type PairOptions } from '../inputs/certificates.js'
import { createMember } from '../services/members.js'
import { type Krater, until } from './krater.js'

const BASE = '/v2/lbaas'

/** Certificates of a CA that only this process trusts. */
export const authority = makePair({ subject: '/CN=authority of the test' })

/** A certificate for a host name, issued by `authority`. */
export const certificateFor = (name: string, options: PairOptions = {}): Pair =>
  makePair({
    subject: `/CN=${name}`,
    issuer: authority,
    ...options,
    args: ['-addext', `subjectAltName=DNS:${name}`, ...(options.args ?? [])],
  })

/** A load balancer with a TERMINATED_HTTPS listener on port 443 before one member, and what a test does with it. */
export type HttpsSite = {
  id: string
  vip: string
  listener: string
  pool: string
  api: ApiClient
  /** Stores a certificate with its key as a PKCS#12 bundle. @returns its reference */
  store: (pair: Pair) => Promise<string>
  /** Stores anything else: a CA, a revocation list. @returns its reference */
  storeBytes: (bytes: Buffer) => Promise<string>
  send: <T>(method: string, path: string, body?: object) => Promise<T>
  /** Waits until the newest change is in effect. */
  applied: () => Promise<void>
  /** Updates the listener and waits. */
  update: (listener: object) => Promise<void>
  /** A request by its host name. @returns its status and the certificate's serial number */
  ask: (name: string) => Promise<{ status: number; serial: string }>
  /** How the newest changes took effect, newest first. */
  transitions: () => Promise<string[]>
}

export async function createHttpsSite(
  t: Test,
  krater: Krater,
  certificate: Pair,
  options: { listener?: object; loadBalancer?: object; cloud?: 'krater' | 'krater-admin' } = {},
): Promise<HttpsSite> {
  const api = await krater.api(options.cloud)
  const send = async <T>(method: string, path: string, body?: object) =>
    (await api.request('load-balancer', method, `${BASE}/${path}`, body)) as T
  const member = await createMember(t, krater, 'web')
  const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets')) as {
    subnets: { id: string; name: string }[]
  }
  const subnet = (name: string) => subnets.find(one => one.name === name)?.id
  const storeBytes = (bytes: Buffer) => storeSecret(api, bytes)
  const store = (pair: Pair) => storeBytes(makeBundle(pair))
  const { loadbalancer } = await send<{
    loadbalancer: { id: string; vip_address: string; listeners: { id: string }[]; pools: { id: string }[] }
  }>('POST', 'loadbalancers', {
    loadbalancer: {
      vip_subnet_id: subnet('public-subnet'),
      ...options.loadBalancer,
      listeners: [
        {
          protocol: 'TERMINATED_HTTPS',
          protocol_port: 443,
          default_tls_container_ref: await store(certificate),
          ...options.listener,
          default_pool: {
            ...{ name: 'web', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
            members: [{ address: member.address, protocol_port: member.port, subnet_id: subnet('private-subnet') }],
          },
        },
      ],
    },
  })
  const { id, vip_address: vip } = loadbalancer
  const listener = loadbalancer.listeners[0]?.id ?? ''
  const applied = () =>
    until('the change is in effect', async () => {
      const found = await send<{ loadbalancer: { provisioning_status: string } }>('GET', `loadbalancers/${id}`)
      return found.loadbalancer.provisioning_status === 'ACTIVE'
    })
  await applied()
  return {
    ...{ id, vip, listener, pool: loadbalancer.pools[0]?.id ?? '', api, store, storeBytes, send, applied },
    update: async changes => {
      await send('PUT', `listeners/${listener}`, { listener: changes })
      await applied()
    },
    ask: name => askHttps({ host: vip, name, tls: { ca: authority.certificate } }),
    transitions: async () => {
      const { events } = await send<{ events: { kind: string; amphorae: { how?: string }[] }[] }>(
        'GET',
        `loadbalancers/${id}/events`,
      )
      return events
        .filter(({ kind }) => kind === 'applied')
        .flatMap(({ amphorae }) => amphorae.flatMap(({ how }) => how ?? []))
    },
  }
}

/** A connection that stays open. @param onClose called when the other side ends it */
export function keepOpen(vip: string, name: string, onClose: () => void): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: vip, port: 443, servername: name, ca: authority.certificate }, () => resolve(socket))
    socket.once('error', reject)
    socket.once('close', onClose)
  })
}
