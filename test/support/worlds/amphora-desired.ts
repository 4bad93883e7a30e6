import { createHash } from 'node:crypto'
import type { Backend, Desired, Server } from '../../../amphora-agent/protocol/desired.js'
import {
  HAPROXY_CHROOT,
  HAPROXY_LOG_LINE,
  HAPROXY_PEERS_PORT,
  HAPROXY_SERVER_STATE_FILE,
  HAPROXY_SOCKET_LINE,
} from '../../../amphora-agent/protocol/paths.js'

export const LOAD_BALANCER = 'a2f0f7f2-6f0e-4d7c-9d0e-0d5c8a1b2c3d'
const POOL = 'pool-1'
const LISTENER = 'listener-1'
export const BACKEND = `${POOL}:${LISTENER}`

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')

/** A server on 127.0.0.1 whose name, number and port agree; checked every 200 ms. */
export function server(number: number, changes: Partial<Server> = {}): Server {
  return {
    name: `member-${number}`,
    number,
    address: '127.0.0.1',
    port: 9000 + number,
    weight: 10,
    disabled: false,
    backup: false,
    options: ['check', 'inter', '200ms', 'fall', '2', 'rise', '2'],
    ...changes,
  }
}

export type Wish = {
  generation: number
  fence?: number
  servers?: Server[]
  balance?: string
  dynamic?: boolean
  deregistrationDelay?: number
  /** More lines of the frontend. */
  frontend?: string[]
  bind?: string
  /** The listener's connection limit; unknown by default. */
  maxconn?: number
  /** More lines of `global`. */
  global?: string[]
  /** HAProxy's own name among its peers; with it, clients return to their member by address. */
  peer?: string
  changes?: Partial<Desired>
}

/**
 * The desired state of a load balancer with one HTTP listener on port 8080 and one pool, hashed as the renderer
 * does.
 */
export function desire(wish: Wish): Desired {
  const { generation, fence = generation, servers = [], changes = {} } = wish
  const lines = servers.map(
    ({ name, address, port, number, weight, backup, disabled, options }) =>
      `  server ${name} ${address}:${port} id ${number} weight ${weight}${backup ? ' backup' : ''}${disabled ? ' disabled' : ''} ${options.join(' ')}`,
  )
  const { maxconn, ...others } = wish
  const skeleton = textOf(others, [])
  const text = textOf(wish, lines)
  const { dynamic = true, deregistrationDelay = 30 } = wish
  const backends: Backend[] = [{ name: BACKEND, dynamic, deregistrationDelay, servers }]
  const frontends = maxconn === undefined ? [] : [{ name: LISTENER, maxconn }]
  const desired: Desired = {
    loadBalancerId: LOAD_BALANCER,
    generation,
    fence,
    interfaces: [],
    haproxy: {
      text,
      sha256: sha256(text),
      skeletonSha256: sha256(skeleton),
      frontends,
      backends,
      tls: { files: [], lists: [] },
    },
    keepalived: null,
    pair: null,
    oldWorkers: { most: 50, memoryMib: 512 },
    downMembers: [],
    objects: {
      listeners: [LISTENER],
      pools: [{ poolId: POOL, listenerId: LISTENER, members: servers.map(({ name }) => name) }],
    },
    sha256: '',
    ...changes,
  }
  const { generation: _, fence: __, downMembers: ___, ...parts } = desired
  return { ...desired, sha256: sha256(JSON.stringify(parts)) }
}

function textOf(
  { balance = 'roundrobin', frontend = [], bind = '127.0.0.1:8080', maxconn, global = [], peer }: Wish,
  servers: string[],
) {
  return `global
  ${HAPROXY_SOCKET_LINE}
  ${HAPROXY_LOG_LINE}
  user haproxy
  group haproxy
  chroot ${HAPROXY_CHROOT}
  server-state-file ${HAPROXY_SERVER_STATE_FILE}
${global.map(line => `  ${line}\n`).join('')}${peer === undefined ? '' : `  localpeer ${peer}\n`}
defaults
  mode http
  log global
  option dontlog-normal
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  retries 3
  option redispatch
  default-server pool-purge-delay 100ms
  option idle-close-on-response
  option contstats
  load-server-state-from-file global
${peer === undefined ? '' : `\npeers amphorae\n  peer ${peer} 127.0.0.1:${HAPROXY_PEERS_PORT}\n`}
frontend ${LISTENER}
  bind ${bind}
${maxconn === undefined ? '' : `  maxconn ${maxconn}\n`}  default_backend ${BACKEND}
${frontend.map(line => `  ${line}\n`).join('')}
backend ${BACKEND}
  balance ${balance}
${peer === undefined ? '' : '  stick-table type ipv6 size 200k expire 1h peers amphorae\n  stick on src\n'}${servers.map(line => `${line}\n`).join('')}`
}
