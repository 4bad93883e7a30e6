import { X509Certificate } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { askHttps, startHttpsLoad } from '../clients/https-load.js'
import { processesInside } from '../faults/crash-amphora.js'
import { makePair, makeRevocationList, type Pair } from '../inputs/certificates.js'
import { authority, certificateFor, createHttpsSite } from './https-site.js'
import { startKrater, until } from './krater.js'

const SITE = 'www.example.com'
const OTHER = 'other.example.com'
const CLIENTS_PORT = 8443
const serialOf = ({ certificate }: Pair) => new X509Certificate(certificate).serialNumber.toLowerCase()
const percentile = (sorted: readonly number[], part: number) =>
  Math.round(sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? 0)

/** One kind of change. `next` is the body of the update in a turn. */
type Change = { what: string; of: string; next: (turn: number) => object; isSeen: () => Promise<boolean> }

/**
 * Certificates, names, CAs and revocation lists of listeners change while clients use them. Asserts that no request fails
 * and that HAProxy does not reload, and comments how long it takes until a handshake shows each change.
 * @param rotations how many changes
 */
export async function rotateCertificates(t: Test, rotations: number): Promise<void> {
  const krater = await startKrater(t)
  const site = await createHttpsSite(t, krater, certificateFor(SITE))
  const insideOf = async () => {
    const { amphorae } = await (await krater.api('krater-admin'))
      .request('load-balancer', 'GET', '/v2/octavia/amphorae')
      .then(answer => answer as { amphorae: { id: string; loadbalancer_id: string | null }[] })
    const { id } = amphorae.find(one => one.loadbalancer_id === site.id) ?? { id: '' }
    return processesInside(`krater-${krater.instance()}-${id}`)
  }
  const workers = async () =>
    (await insideOf())
      .filter(({ command }) => /haproxy/.test(command) && !/node/.test(command))
      .map(({ pid }) => pid)
      .sort()

  const pairs = Array.from({ length: 20 }, (_, at) => certificateFor(SITE, { kind: at % 4 === 3 ? 'rsa' : 'ec' }))
  const stored = await Promise.all(pairs.map(async pair => ({ serial: serialOf(pair), ref: await site.store(pair) })))
  const other = certificateFor(OTHER)
  const otherRef = await site.store(other)
  const authorities = [1, 2].map(at => makePair({ subject: `/CN=clients ${at}` }))
  const clients = await Promise.all(
    authorities.map(async issuer => {
      const pair = makePair({ subject: '/CN=client', issuer })
      return {
        tls: { ca: authority.certificate, cert: pair.certificate, key: pair.privateKey },
        ca: await site.storeBytes(Buffer.from(issuer.certificate)),
        revoking: await site.storeBytes(Buffer.from(makeRevocationList(issuer, pair))),
        allowing: await site.storeBytes(Buffer.from(makeRevocationList(issuer))),
      }
    }),
  )
  const [one, two] = clients
  if (one === undefined || two === undefined) throw new Error('two CAs')
  const { listener } = await site.send<{ listener: { id: string } }>('POST', 'listeners', {
    listener: {
      ...{ loadbalancer_id: site.id, protocol: 'TERMINATED_HTTPS', protocol_port: CLIENTS_PORT },
      ...{ default_pool_id: site.pool, default_tls_container_ref: stored[0]?.ref },
      ...{ client_authentication: 'OPTIONAL', client_ca_tls_container_ref: one.ca },
      client_crl_container_ref: one.allowing,
    },
  })
  await site.applied()
  let certificate = stored[0]
  const before = await workers()
  t.ok(before.length >= 2, `HAProxy runs as ${before}`)

  const served = (name: string) => askHttps({ host: site.vip, name, tls: { ca: authority.certificate } })
  const isAccepted = ({ tls }: typeof one) =>
    askHttps({ host: site.vip, port: CLIENTS_PORT, name: SITE, tls }).then(
      () => true,
      () => false,
    )
  const changes: Change[] = [
    ...Array.from({ length: 5 }, () => ({
      what: 'a certificate changes',
      of: site.listener,
      next: (turn: number) => {
        certificate = stored[turn % stored.length]
        return { default_tls_container_ref: certificate?.ref }
      },
      isSeen: async () => (await served(SITE)).serial === certificate?.serial,
    })),
    {
      what: 'a name is added',
      of: site.listener,
      next: () => ({ sni_container_refs: [otherRef] }),
      isSeen: () =>
        served(OTHER).then(
          ({ serial }) => serial === serialOf(other),
          () => false,
        ),
    },
    {
      what: 'a name is removed',
      of: site.listener,
      next: () => ({ sni_container_refs: [] }),
      isSeen: () =>
        served(OTHER).then(
          () => false,
          (error: Error) => /altnames/.test(error.message),
        ),
    },
    {
      what: 'a client is revoked',
      of: listener.id,
      next: () => ({ client_crl_container_ref: one.revoking }),
      isSeen: async () => !(await isAccepted(one)),
    },
    {
      what: 'the CA changes with its revocation list',
      of: listener.id,
      next: () => ({ client_ca_tls_container_ref: two.ca, client_crl_container_ref: two.allowing }),
      isSeen: async () => (await isAccepted(two)) && !(await isAccepted(one)),
    },
    {
      what: 'the CA changes back',
      of: listener.id,
      next: () => ({ client_ca_tls_container_ref: one.ca, client_crl_container_ref: one.allowing }),
      isSeen: async () => (await isAccepted(one)) && !(await isAccepted(two)),
    },
  ]

  const load = startHttpsLoad({ host: site.vip, name: SITE, tls: { ca: authority.certificate } })
  t.teardown(load.stop)
  const times = new Map<string, number[]>()
  for (let turn = 1; turn <= rotations; turn++) {
    const { what, of, next, isSeen } = changes[turn % changes.length]!
    const began = performance.now()
    await site.send('PUT', `listeners/${of}`, { listener: next(turn) })
    while (!(await isSeen())) {
      await pause(20)
      if (performance.now() > began + 60_000) throw new Error(`Not within 60 s: ${what} in turn ${turn}`)
    }
    times.set(what, [...(times.get(what) ?? []), performance.now() - began])
    // A load balancer that still changes refuses another change.
    await site.applied()
  }
  t.equal(load.tally.connections, 2, 'the kept connections stay')
  const ways = (await site.transitions()).slice(0, rotations)
  t.same([...new Set(ways)], ['runtime'], `the newest ${ways.length} changes in the history`)
  t.same(await workers(), before, "HAProxy's processes are the same")

  await site.send('PUT', `listeners/${listener.id}`, { listener: { default_tls_container_ref: otherRef } })
  await until('a certificate beside an exchanged CA', async () =>
    askHttps({ host: site.vip, port: CLIENTS_PORT, name: OTHER, tls: { ca: authority.certificate } }).then(
      ({ serial }) => serial === serialOf(other),
      () => false,
    ),
  )
  await load.stop()
  const { tally } = load
  t.same(tally.failures, [], `${tally.fresh} requests over new connections and ${tally.kept} over kept ones`)
  t.ok(Math.min(tally.fresh, tally.kept) > rotations, 'there was load all the time')
  for (const [what, taken] of times) {
    const sorted = [...taken].sort((a, b) => a - b)
    t.comment(`${what}: ${sorted.length} times, p50 ${percentile(sorted, 0.5)} ms, p99 ${percentile(sorted, 0.99)} ms`)
  }
}
