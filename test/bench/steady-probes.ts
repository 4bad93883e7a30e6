import { Agent, get } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'

const EVERY_MS = 10
const LIMIT_MS = 1_000

type Probe = { beganAt: number; endedAt: number; isAnswered: boolean }

/** The effect of a window of time on requests. */
export type Losses = {
  lost: { fresh: number; kept: number }
  /** The longest time in which no request over a new connection was answered. */
  gapMs: number
}

/** Steady requests to a URL: one every 10 ms over a new connection, and two clients that keep their connection. */
export function startProbes(url: string) {
  const probes = { fresh: [] as Probe[], kept: [] as Probe[] }
  let running = true
  const fresh = new Agent({ keepAlive: false })
  const timer = setInterval(() => void ask(url, fresh).then(probe => probes.fresh.push(probe)), EVERY_MS)
  const keep = async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    while (running) {
      probes.kept.push(await ask(url, agent))
      await delay(2 * EVERY_MS)
    }
    agent.destroy()
  }
  const clients = [keep(), keep()]
  return {
    /** Since a time of performance.now(); forgets everything before. */
    losses: (since: number): Losses => {
      for (const kind of ['fresh', 'kept'] as const)
        probes[kind] = probes[kind].filter(({ endedAt }) => endedAt >= since)
      const lost = (kind: Probe[]) => kind.filter(({ isAnswered }) => !isAnswered).length
      const answered = probes.fresh.flatMap(({ isAnswered, endedAt }) => (isAnswered ? [endedAt] : []))
      const times = [since, ...answered.sort((a, b) => a - b), performance.now()]
      const gapMs = Math.max(...times.slice(1).map((time, at) => time - (times[at] ?? time)))
      return { lost: { fresh: lost(probes.fresh), kept: lost(probes.kept) }, gapMs }
    },
    stop: async () => {
      running = false
      clearInterval(timer)
      await Promise.all(clients)
    },
  }
}

function ask(url: string, agent: Agent): Promise<Probe> {
  const beganAt = performance.now()
  return new Promise(resolve => {
    const end = (isAnswered: boolean) => resolve({ beganAt, endedAt: performance.now(), isAnswered })
    const request = get(url, { agent, timeout: LIMIT_MS }, response => {
      response.on('end', () => end(response.statusCode === 200))
      response.on('error', () => end(false))
      response.resume()
    })
    request.on('timeout', () => request.destroy(new Error('no answer in time')))
    request.on('error', () => end(false))
  })
}
