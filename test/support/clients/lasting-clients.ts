import { once } from 'node:events'
import { Agent, get, request } from 'node:http'
import type { Socket } from 'node:net'
import { until } from '../worlds/krater.js'

const SLOW_MS = 1_500
const ECHO_MS = 50

/** The answers that a client of each kind got, and its faults. */
export type Tally = { answered: number; faults: string[] }
export type LastingClients = {
  tallies: Record<'kept' | 'slow' | 'tunnel', Tally>
  /** Each client finishes its current request. */
  stop: () => Promise<void>
}

/**
 * Clients whose requests and connections last. One sends request after request over one connection while the
 * server allows it, one waits long for each answer, one upgrades its connection to another protocol and gets an
 * echo of all that it sends.
 * @param url of web servers that answer `/slow/MILLISECONDS` late and echo what comes after an upgrade
 */
export async function startLastingClients(url: string): Promise<LastingClients> {
  const tallies: LastingClients['tallies'] = {
    kept: { answered: 0, faults: [] },
    slow: { answered: 0, faults: [] },
    tunnel: { answered: 0, faults: [] },
  }
  let running = true
  const agents = { kept: new Agent({ keepAlive: true, maxSockets: 1 }), slow: new Agent({ keepAlive: false }) }
  const asking = async (kind: 'kept' | 'slow', path: string) => {
    while (running) {
      const fault = await ask(new URL(path, url), agents[kind])
      if (fault === null) tallies[kind].answered += 1
      else tallies[kind].faults.push(fault)
    }
  }
  const tunnel = await openTunnel(url, tallies.tunnel)
  // Two, so that one is always waiting.
  const clients = [asking('kept', '/'), asking('slow', `/slow/${SLOW_MS}`), asking('slow', `/slow/${SLOW_MS}`)]
  await until('clients of all kinds have answers', () => Object.values(tallies).every(({ answered }) => answered > 0))
  return {
    tallies,
    stop: async () => {
      running = false
      await Promise.all(clients)
      await tunnel.close()
      for (const agent of Object.values(agents)) agent.destroy()
    },
  }
}

/** @returns what went wrong, null for a complete answer */
function ask(url: URL, agent: Agent): Promise<string | null> {
  return new Promise(resolve => {
    const asked = get(url, { agent, timeout: SLOW_MS + 5_000 }, response => {
      response.resume()
      response.on('end', () => resolve(response.statusCode === 200 ? null : `status ${response.statusCode}`))
      response.on('error', error => resolve(String(error)))
    })
    asked.on('timeout', () => asked.destroy(new Error('no answer in time')))
    asked.on('error', error => resolve(String(error)))
  })
}

async function openTunnel(url: string, tally: Tally) {
  const asked = request(url, { headers: { Connection: 'Upgrade', Upgrade: 'echo' }, agent: false })
  asked.end()
  const [, socket] = (await once(asked, 'upgrade')) as [unknown, Socket]
  let closing = false
  socket.on('data', () => (tally.answered += 1))
  socket.on('error', error => tally.faults.push(String(error)))
  socket.on('close', () => closing || tally.faults.push('closed'))
  const timer = setInterval(() => socket.write('x'), ECHO_MS)
  return {
    close: async () => {
      closing = true
      clearInterval(timer)
      if (socket.closed) return
      const closed = once(socket, 'close')
      socket.destroy()
      await closed
    },
  }
}
