import { setTimeout as delay } from 'node:timers/promises'
import { type Failure, startClients, type Tally } from '../support/clients/steady-traffic.js'
import { randomOf } from '../support/inputs/random.js'
import { createChangingBalancer } from '../support/worlds/changing-balancer/changing-balancer.js'
import type { Answer, Change } from '../support/worlds/changing-balancer/model.js'
import type { TenantInterface } from '../support/worlds/tenant-machine.js'
import { type BenchInstance, startInstance } from './instance.js'
import { percentile } from './measure.js'
import { startMemberMachine } from './member-machine.js'

const BASE = '/v2.0/lbaas'
const CHANGES = Number(process.env.BENCH_CHANGES ?? 1_000)
const SEED = Number(process.env.BENCH_SEED ?? 1)
/** Of each kind, for each of the two listeners. */
const CLIENTS = 4
/** Longer than any `deregistration_delay` of the changes. */
const LONGEST_MS = 14_000
const FIRST_PORT = 10_000
/** More than the changes ever request: at most two each, and four at first. */
const PORTS = 2 * CHANGES + 4
const EFFECT_TIMEOUT_MS = 60_000

/** A change that was requested, and when. */
type Done = { at: number; kind: string; method: string; path: string; body?: unknown }
type Times = { answered: number; effective: number }
type Balancer = { id: string; vip_address: string; provisioning_status: string; fault?: unknown }

/**
 * Random changes of all kinds, one after another, through the API of an instance with a real amphora, under clients of all kinds: what broke,
 * and how long changes took. `BENCH_CHANGES` and `BENCH_SEED` choose others. @returns tables, as Markdown @throws Error when anything broke
 */
export async function benchRandomChanges(root: string): Promise<string> {
  const instance = await startInstance(root, {}, 28_500)
  const ends: (() => unknown)[] = [instance.remove]
  try {
    const ending = { teardown: (act: () => unknown) => ends.unshift(act) }
    const members = { firstPort: FIRST_PORT, count: PORTS, networks: 2 } as const
    const places = await startMemberMachine(ending, instance, members)
    const { times, log, tallies, isInOrder } = await playChanges(instance, places)
    const failures = tallies.flatMap(tally => tally.failures)
    const broken = failures.filter(({ member, endedAt }) => !isInOrder(member, endedAt))
    if (broken.length > 0) throw new Error(wordsOf(broken, log, await closedByKrater(instance)))
    return reportOf(times, tallies, failures.length)
  } finally {
    for (const end of ends) await end()
  }
}

/**
 * What broke, each with the changes at that time, and what the load balancer's history reports about closed
 * connections.
 */
function wordsOf(broken: readonly Failure[], log: readonly Done[], closed: readonly unknown[]): string {
  const each = broken.slice(0, 20).map(failure => {
    const meanwhile = log.filter(({ at }) => at >= failure.beganAt && at <= failure.endedAt)
    return [failure, ...meanwhile].map(one => JSON.stringify(one)).join('\n    ')
  })
  return [`${broken.length} broken:`, ...each, 'Closed by Krater:', ...closed.map(one => JSON.stringify(one))].join(
    '\n',
  )
}

async function closedByKrater({ api }: BenchInstance): Promise<unknown[]> {
  const { loadbalancers } = (await api.request('load-balancer', 'GET', `${BASE}/loadbalancers`)) as {
    loadbalancers: Balancer[]
  }
  const path = `${BASE}/loadbalancers/${loadbalancers[0]?.id}/events?limit=1000`
  const { events } = (await api.request('load-balancer', 'GET', path)) as { events: { repair: unknown }[] }
  return events.filter(({ repair }) => repair !== null && repair !== undefined)
}

async function playChanges({ api }: BenchInstance, places: TenantInterface['legs']) {
  const call = (method: string, path: string, body?: unknown) =>
    api.request('load-balancer', method, `${BASE}${path}`, body)
  const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
    subnets: { id: string }[]
  }
  const { loadbalancer } = (await call('POST', '/loadbalancers', {
    loadbalancer: { vip_subnet_id: subnets[0]?.id },
  })) as { loadbalancer: Balancer }
  const untilInEffect = async () => {
    for (const until = performance.now() + EFFECT_TIMEOUT_MS; performance.now() < until; await delay(10)) {
      const { loadbalancer: shown } = (await call('GET', `/loadbalancers/${loadbalancer.id}`)) as {
        loadbalancer: Balancer
      }
      if (shown.provisioning_status === 'ACTIVE') return
      if (shown.provisioning_status === 'ERROR') throw new Error(JSON.stringify(shown.fault))
    }
    throw new Error(`A change was not in effect after ${EFFECT_TIMEOUT_MS} ms.`)
  }
  const carryOut = async ({ method, path, body, after }: Change): Promise<Times> => {
    const asked = performance.now()
    const answer = (await call(method, path, body)) as Answer
    const answered = performance.now()
    await untilInEffect()
    const effective = performance.now()
    await after?.(answer)
    return { answered: answered - asked, effective: effective - answered }
  }
  await untilInEffect()
  const plan = { random: randomOf(SEED), loadBalancerId: loadbalancer.id, places, firstPort: FIRST_PORT, call }
  const balancer = await createChangingBalancer(plan, carryOut)
  const clients = [80, 81].map(port =>
    startClients({
      url: `http://${loadbalancer.vip_address}:${port}/`,
      each: CLIENTS,
      longestMs: LONGEST_MS,
      staysWithMember: port === 81,
    }),
  )
  const times = new Map<string, Times[]>()
  const log: Done[] = []
  let stopped: unknown = null
  try {
    for (let done = 1; done <= CHANGES; done++) {
      const { kind, change } = balancer.next()
      const { method, path, body } = change
      log.push({ at: Date.now(), kind, method, path, body })
      times.set(kind, [...(times.get(kind) ?? []), await carryOut(change)])
      if (done % 50 === 0) process.stderr.write(`${done} changes\n`)
    }
  } catch (error) {
    // Report what broke before the error.
    stopped = error
  }
  const tallies = await Promise.all(clients.map(end => end()))
  if (stopped !== null) process.stderr.write(`Stopped: ${String(stopped)}\n`)
  return { times, log, tallies, isInOrder: balancer.isInOrder }
}

function reportOf(times: ReadonlyMap<string, Times[]>, tallies: readonly Tally[], cutInOrder: number): string {
  const served = ['an HTTP', 'a TCP'].map((listener, at) => {
    const kinds = Object.entries(tallies[at]?.done ?? {}).map(([kind, number]) => `${number} ${kind}`)
    return `${kinds.join(', ')} at ${listener} listener`
  })
  const all = [...times.values()].flat()
  const rows = [...times, ['all', all] as const].map(([kind, each]) => {
    const figures = (['answered', 'effective'] as const).flatMap(of => {
      const sorted = each.map(time => time[of]).sort((one, other) => one - other)
      return [0.5, 0.99].map(share => percentile(sorted, share).toFixed(0))
    })
    return `| ${kind} | ${each.length} | ${figures.join(' | ')} |`
  })
  return [
    `${all.length} changes (seed ${SEED}) through the API, one after another, of a load balancer on a real amphora whose pools have a \`deregistration_delay\` of 6 to 10 s, under ${CLIENTS} clients of each kind at each of two listeners: ${served.join('; ')}. Broken: 0. Closed as intended, because they outlived the delay of a member that had left: ${cutInOrder}.`,
    [
      '| change | count | the API answers, ms: median | 99 % | in effect after the answer: median | 99 % |',
      '| --- | ---: | ---: | ---: | ---: | ---: |',
      ...rows,
    ].join('\n'),
  ].join('\n\n')
}
