import { mkdtempSync, rmSync } from 'node:fs'
import { Agent, createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { aMember, aPool, aTree, aVipInterface, someFacts, uuid } from '../../golden/models.js'
import { ownPorts } from '../ports.js'
import { startHaproxy } from '../services/haproxy.js'

export type L7Request = { path: string; headers: readonly (readonly [name: string, value: string])[] }

/** The outcome of a request: `reject`, `301 <location>`, the name of the pool that answered, or the bare status. */
export type Outcome = string

/** Of all listeners together. */
const CONNECTIONS = 8_000

type Listeners = Pick<LoadBalancerTree, 'listeners'>['listeners']

/** The pools that policies may name, by number; the third is disabled and the fourth is being deleted. */
export const POOLS = { default: 1, other: 2, disabled: 3, deleted: 4 } as const

/**
 * A real HAProxy with the given listeners, each on its own port, and a web server behind each pool of POOLS
 * that answers with its number. It ends with the test.
 */
export async function serveL7(t: Test, definitions: Listeners) {
  const servers = [1, 2, 3, 4].map(number =>
    createServer({ requireHostHeader: false }, (incoming, response) => {
      response.setHeader('seen', JSON.stringify(incoming.headers))
      response.end(`pool ${number}`)
    }),
  )
  for (const server of servers) {
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    t.teardown(() => {
      server.closeAllConnections()
      return new Promise(resolve => server.close(resolve))
    })
  }
  const pools = servers.map((server, index) =>
    aPool(index + 1, {
      adminStateUp: index + 1 !== POOLS.disabled,
      change: index + 1 === POOLS.deleted ? 'delete' : 'create',
      members: [aMember(index + 1, { address: '127.0.0.1', protocolPort: (server.address() as AddressInfo).port })],
    }),
  )
  const ports = await ownPorts(definitions.length)
  // So many listeners without a limit would need more than the machine has.
  const listeners = definitions.map((listener, index) => ({
    ...listener,
    protocolPort: ports[index] ?? 0,
    connectionLimit: Math.floor(CONNECTIONS / definitions.length),
  }))
  const tree = aTree({ listeners, pools })
  const onLoopback = { ...tree, vip: { ...tree.vip, address: '127.0.0.1' } }
  const desired = renderDesired(onLoopback, someFacts({ interfaces: [{ ...aVipInterface(), mtu: 65_535 }] }))
  const directory = mkdtempSync(join(tmpdir(), 'krater-l7-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  const haproxy = await startHaproxy(directory, desired.haproxy?.text ?? '')
  t.teardown(haproxy.stop)
  const agent = new Agent({ keepAlive: true })
  t.teardown(() => agent.destroy())
  const portOf = new Map(listeners.map(({ id, protocolPort }) => [id, protocolPort]))
  return {
    desired,
    command: haproxy.command,
    /** Sends a request to the listener with that number. */
    ask: (listener: number, sent: Partial<L7Request> = {}) =>
      send(agent, portOf.get(uuid(2, listener)) ?? 0, { path: '/', headers: [['Host', 'x']], ...sent }),
  }
}

function send(
  agent: Agent,
  port: number,
  { path, headers }: L7Request,
): Promise<{ outcome: Outcome; seen: Record<string, string> }> {
  return new Promise((resolve, reject) => {
    const lines = headers.flat()
    const outgoing = request(
      { agent, host: '127.0.0.1', port, path, headers: lines, setHost: false, timeout: 5_000 },
      response => {
        const { statusCode = 0, headers: answered } = response
        let body = ''
        response.setEncoding('utf8').on('data', piece => {
          body += piece
        })
        response.once('end', () =>
          resolve({
            outcome: outcomeOf(statusCode, answered.location, body),
            seen: JSON.parse(typeof answered.seen === 'string' ? answered.seen : '{}'),
          }),
        )
      },
    )
    outgoing.once('timeout', () => outgoing.destroy(new Error('no answer within 5 s')))
    outgoing.once('error', reject)
    outgoing.end()
  })
}

function outcomeOf(status: number, location: string | undefined, body: string): Outcome {
  if (status === 200) return body
  if (status === 403) return 'reject'
  return location === undefined ? String(status) : `${status} ${location}`
}
