import { Agent, request } from 'node:https'
import { setTimeout as pause } from 'node:timers/promises'
import type { SecureContextOptions, TLSSocket } from 'node:tls'

const PAUSE_MS = 40
const LIMIT_MS = 30_000

export type HttpsAsked = {
  host: string
  port?: number
  name: string
  /** The authorities that the client trusts, and its own certificate if it has one. */
  tls?: Pick<SecureContextOptions, 'ca' | 'cert' | 'key'>
  agent?: Agent
}

/**
 * One request by host name, over a connection of its own unless an agent is given.
 * @returns the status and the serial number of the certificate that was served @throws Error if it gets no whole answer
 */
export function askHttps({
  host,
  port = 443,
  name,
  tls,
  agent,
}: HttpsAsked): Promise<{ status: number; serial: string }> {
  return new Promise((resolve, reject) => {
    const options = { host, port, servername: name, headers: { Host: name }, timeout: LIMIT_MS, ...tls }
    const sent = request({ ...options, agent: agent ?? false }, answer => {
      const { serialNumber } = (answer.socket as TLSSocket).getPeerCertificate()
      answer.once('error', reject)
      answer.resume().once('end', () => resolve({ status: answer.statusCode ?? 0, serial: serialNumber.toLowerCase() }))
    })
    sent.once('timeout', () => sent.destroy(new Error(`no answer within ${LIMIT_MS} ms`)))
    sent.once('error', reject)
    sent.end()
  })
}

export type HttpsTally = { fresh: number; kept: number; connections: number; failures: string[] }

/**
 * Two clients that connect anew for each request, and two that keep their connection, until stopped.
 * @returns what they got so far; `connections` counts those of the clients that keep theirs
 */
export function startHttpsLoad(asked: HttpsAsked): { tally: HttpsTally; stop: () => Promise<void> } {
  const tally: HttpsTally = { fresh: 0, kept: 0, connections: 0, failures: [] }
  let running = true
  const client = async (kind: 'fresh' | 'kept') => {
    const agent = kind === 'kept' ? new Agent({ keepAlive: true, maxSockets: 1, ...asked.tls }) : undefined
    const seen = new WeakSet<object>()
    while (running) {
      try {
        const { status } = await askHttps({ ...asked, ...(agent !== undefined && { agent }) })
        if (status === 200) tally[kind] += 1
        else tally.failures.push(`${kind}: status ${status}`)
      } catch (error) {
        tally.failures.push(`${kind}: ${error}`)
      }
      for (const socket of Object.values(agent?.freeSockets ?? {}).flatMap(list => list ?? [])) {
        if (!seen.has(socket)) tally.connections += 1
        seen.add(socket)
      }
      await pause(PAUSE_MS)
    }
    agent?.destroy()
  }
  const ended = Promise.all((['fresh', 'fresh', 'kept', 'kept'] as const).map(client))
  return {
    tally,
    stop: async () => {
      running = false
      await ended
    },
  }
}
