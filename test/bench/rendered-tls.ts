import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import type { HaproxyPart } from '../../amphora-agent/protocol/desired.js'
import { HAPROXY_LOG_LINE } from '../../amphora-agent/protocol/paths.js'
import { MOZILLA_INTERMEDIATE } from '../../controller/load-balancer/options.js'
import { renderDesired } from '../../controller/provider/amphora/rendering/desired.js'
import { aListener, aMember, aPool, aTree, someFacts, uuid } from '../golden/models.js'
import { ownPorts } from '../support/ports.js'
import { run, startHaproxy } from '../support/services/haproxy.js'
import { processorSeconds } from './instance.js'
import { percentile } from './measure.js'
import { type Contestant, ROUNDS, rowsOf, SECONDS, tableOf, takeTurns } from './turns.js'
import { type Answers, load, startMembers } from './wrk.js'

const KINDS = ['rsa', 'ec'] as const
type Kind = (typeof KINDS)[number]
const NAMES: Readonly<Record<Kind, string>> = { rsa: 'RSA-2048', ec: 'P-256' }
const NEW_KEY = { rsa: ['rsa:2048'], ec: ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'] }
const MEMBERS = 2
const CLIENTS = 4

type Served = Contestant & { ports: Record<Kind, number> }

const suites = MOZILLA_INTERMEDIATE.split(':').filter(name => name.startsWith('TLS_'))
const ciphers = MOZILLA_INTERMEDIATE.split(':').filter(name => !name.startsWith('TLS_'))

/** What a careful engineer would write by hand from Mozilla's intermediate profile. */
const handTuned = (ports: Record<Kind, number>, members: readonly number[], maxconn: string) => `global
    default-path config
    stats socket /run/krater/haproxy.sock mode 600 level admin
    ${HAPROXY_LOG_LINE}
    user haproxy
    group haproxy
    chroot /run/haproxy-root
    maxconn ${maxconn}
    maxpipes 250
    ssl-default-bind-ciphers ${ciphers.join(':')}
    ssl-default-bind-ciphersuites ${suites.join(':')}
    ssl-default-bind-curves X25519:prime256v1:secp384r1
    ssl-default-bind-options prefer-client-ciphers ssl-min-ver TLSv1.2 no-tls-tickets

defaults
    mode http
    log global
    option httplog
    option dontlognull
    option dontlog-normal
    option splice-request
    option splice-response
    option redispatch
    retries 3
    timeout connect 5s
    timeout client 50s
    timeout server 50s
    timeout http-request 10s
    timeout tunnel 1h
${KINDS.map(kind => `\nfrontend ${kind}\n    bind 127.0.0.1:${ports[kind]} ssl crt ${kind}.pem alpn h2,http/1.1\n    default_backend out\n`).join('')}
backend out
    balance roundrobin
    http-reuse safe
${members.map((port, at) => `    server member-${at} 127.0.0.1:${port}\n`).join('')}`

/** PEM of a self-signed certificate with its key. */
async function makeCertificate(directory: string, kind: Kind): Promise<string> {
  const [key, certificate] = [join(directory, `${kind}.key`), join(directory, `${kind}.crt`)]
  const words = ['req', '-x509', '-newkey', ...NEW_KEY[kind], '-nodes', '-subj', '/CN=www.example.com', '-days', '9']
  const { code, output } = await run('openssl', [...words, '-keyout', key, '-out', certificate])
  if (code !== 0) throw new Error(output)
  return readFileSync(certificate, 'utf8') + readFileSync(key, 'utf8')
}

function rendered(ports: Record<Kind, number>, refs: Record<Kind, string>, members: readonly number[]): HaproxyPart {
  const tree = aTree({
    listeners: KINDS.map((kind, at) =>
      aListener(at + 1, {
        ...{ protocol: 'TERMINATED_HTTPS', protocolPort: ports[kind], defaultPoolId: uuid(3, 1) },
        ...{ defaultTlsContainerRef: refs[kind], tlsCiphers: MOZILLA_INTERMEDIATE, alpnProtocols: ['h2', 'http/1.1'] },
        tlsVersions: ['TLSv1.2', 'TLSv1.3'],
      }),
    ),
    pools: [
      aPool(1, {
        members: members.map((protocolPort, at) =>
          aMember(at + 1, { serverNumber: at + 1, address: '127.0.0.1', protocolPort }),
        ),
      }),
    ],
  })
  const { haproxy } = renderDesired({ ...tree, vip: { ...tree.vip, address: '127.0.0.1' } }, someFacts())
  if (haproxy === null) throw new Error('Nothing was rendered.')
  return haproxy
}

async function startContestants(directory: string, members: readonly number[]): Promise<Served[]> {
  const reference = (number: number) => `https://keys.example/v1/secrets/${uuid(7, number)}`
  const refs = { rsa: reference(1), ec: reference(2) }
  const material = new Map<string, string>()
  for (const kind of KINDS) material.set(refs[kind], await makeCertificate(directory, kind))
  const started: Served[] = []
  const portsFor = async () => {
    const [rsa = 0, ec = 0] = await ownPorts(2)
    return { rsa, ec }
  }
  const begin = async (name: string, ports: Record<Kind, number>, text: string, files: Partial<HaproxyPart> = {}) => {
    const place = join(directory, name)
    mkdirSync(place)
    for (const kind of KINDS) writeFileSync(join(place, `${kind}.pem`), material.get(refs[kind]) ?? '')
    const running = await startHaproxy(place, text, { ...files, material })
    started.push({ name, ports, cpu: () => processorSeconds(running.pid), stop: running.stop })
  }
  try {
    const [byHand, byKrater] = [await portsFor(), await portsFor()]
    const part = rendered(byKrater, refs, members)
    await begin('hand-tuned', byHand, handTuned(byHand, members, /^ {4}maxconn (\d+)$/m.exec(part.text)?.[1] ?? ''))
    await begin('rendered', byKrater, part.text, part)
    return started
  } catch (error) {
    for (const { stop } of started) await stop()
    throw error
  }
}

/** Handshakes that resume a session by TLS 1.2, one after another from each of a few clients. */
async function resume(port: number): Promise<Answers> {
  const { session } = await shakeHands(port)
  const latencies: number[] = []
  let broken = 0
  const until = performance.now() + SECONDS * 1000
  const client = async () => {
    while (performance.now() < until) {
      const started = performance.now()
      const { isReused } = await shakeHands(port, session)
      latencies.push(performance.now() - started)
      if (!isReused) broken += 1
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, client))
  const sorted = latencies.toSorted((one, other) => one - other)
  const [p50, p99] = [percentile(sorted, 0.5), percentile(sorted, 0.99)]
  return { requests: sorted.length, requestsPerSecond: sorted.length / SECONDS, p50, p99, broken }
}

function shakeHands(port: number, session?: Buffer): Promise<{ session: Buffer | undefined; isReused: boolean }> {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, rejectUnauthorized: false, maxVersion: 'TLSv1.2' as const }
    const socket = connect({ ...options, ...(session && { session }) }, () => {
      resolve({ session: socket.getSession(), isReused: socket.isSessionReused() })
      socket.destroy()
    })
    socket.setTimeout(5_000, () => socket.destroy(new Error('HAProxy does not answer')))
    socket.once('error', reject)
  })
}

/**
 * Requests and handshakes through listeners that terminate TLS, as Krater renders them and as written by hand, on the
 * same HAProxy and in the same run.
 * @returns a table, as Markdown
 */
export async function benchRenderedTls(): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'krt-'))
  const members = await ownPorts(MEMBERS)
  const stopMembers = await startMembers(directory, members)
  const contestants = await startContestants(directory, members).catch(async error => {
    await stopMembers()
    throw error
  })
  const common = { path: '/small', seconds: SECONDS, tls: true }
  try {
    const rows: string[] = []
    const compare = async (title: string, measure: (contestant: Served) => Promise<Answers>) => {
      rows.push(...rowsOf(title, contestants, await takeTurns(contestants, measure)))
    }
    await compare('kept connections', ({ ports }) =>
      load({ ...common, port: ports.ec, connections: 32, newConnections: false }),
    )
    for (const kind of KINDS) {
      await compare(`new connections, ${NAMES[kind]}`, ({ ports }) =>
        load({ ...common, port: ports[kind], connections: 32, newConnections: true }),
      )
    }
    await compare('resumed sessions', ({ ports }) => resume(ports.ec))
    return tableOf(
      `nginx with ${MEMBERS} members, clients and HAProxy share this machine; ${ROUNDS} turns of ${SECONDS} s each. The clients are wrk with 32 connections and, for resumed sessions (TLS 1.2), ${CLIENTS} connections of Node.js at a time, where a broken one was not resumed. A new connection is a full handshake with a request; CPU time is HAProxy’s for one of them.`,
      rows,
    )
  } finally {
    for (const { stop } of contestants) await stop()
    await stopMembers()
    rmSync(directory, { recursive: true, force: true })
  }
}
