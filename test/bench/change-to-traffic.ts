import { readFileSync } from 'node:fs'
import { Agent, get } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import type { ApiClient } from '../../controller/cli/api-client.js'
import { logFile } from '../../controller/cli/host/log-files.js'
import { startInstance } from './instance.js'
import { percentile } from './measure.js'

const BASE = '/v2.0/lbaas'
const ROUNDS = 40

type Member = { id: string; name: string; address: string; protocol_port: number; subnet_id: string }
type Balancer = { id: string; vip_address: string; provisioning_status: string; pools: { id: string }[] }
type Times = { asked: number; answered: number; effective: number }

/** The request, and whether the member serves after it. Each change leaves what the next one needs. */
type Change = {
  name: string
  serves: boolean
  ask: (api: ApiClient, path: string, member: Member) => Promise<unknown>
}

const put =
  (member: Record<string, unknown>) =>
  (api: ApiClient, path: string, { id }: Member) =>
    api.request('load-balancer', 'PUT', `${path}/${id}`, { member })

const CHANGES: readonly Change[] = [
  { name: 'weight 0', serves: false, ask: put({ weight: 0 }) },
  { name: 'weight 1', serves: true, ask: put({ weight: 1 }) },
  { name: 'disabled', serves: false, ask: put({ admin_state_up: false }) },
  { name: 'enabled', serves: true, ask: put({ admin_state_up: true }) },
  {
    name: 'removed',
    serves: false,
    ask: (api, path, { id }) => api.request('load-balancer', 'DELETE', `${path}/${id}`),
  },
  {
    name: 'joined',
    serves: true,
    ask: (api, path, { name, address, protocol_port, subnet_id }) =>
      api.request('load-balancer', 'POST', path, { member: { name, address, protocol_port, subnet_id } }),
  },
]

/**
 * Measures the time from the API's answer until the traffic follows, for each kind of change of a member, over
 * a real amphora, and where the time goes. @returns tables, as Markdown
 */
export async function benchChangeToTraffic(root: string): Promise<string> {
  const instance = await startInstance(root, { KRATER_LOG_LEVEL: 'debug' }, 28_200)
  try {
    await instance.krater('demo')
    const { api } = instance
    const balancer = async () => {
      const query = 'name=krater-demo'
      const { loadbalancers } = (await api.request('load-balancer', 'GET', `${BASE}/loadbalancers?${query}`)) as {
        loadbalancers: Balancer[]
      }
      const [found] = loadbalancers
      if (found === undefined) throw new Error('The demonstration has no load balancer.')
      return found
    }
    const untilSettled = async () => {
      while ((await balancer()).provisioning_status !== 'ACTIVE') await delay(20)
    }
    const { vip_address, pools } = await balancer()
    const path = `${BASE}/pools/${pools[0]?.id}/members`
    const measured = new Map<string, Times[]>(CHANGES.map(({ name }) => [name, []]))
    let last: Member | undefined
    for (let round = 0; round < ROUNDS; round++) {
      for (const { name, serves, ask } of CHANGES) {
        await untilSettled()
        const { members } = (await api.request('load-balancer', 'GET', path)) as { members: Member[] }
        const member = members.find(candidate => candidate.name === 'web-1') ?? last
        if (member === undefined) throw new Error('The demonstration has no member web-1.')
        last = member
        const asked = Date.now()
        const before = performance.now()
        const at = (time: number) => asked + time - before
        await ask(api, path, member)
        const answered = at(performance.now())
        const effective = at(await inEffectAt(`http://${vip_address}/`, 'web-1', serves))
        measured.get(name)?.push({ asked, answered, effective })
      }
    }
    await untilSettled()
    return [
      `One real amphora with two monitored members, steady requests through the VIP, ${ROUNDS} changes of each kind; milliseconds.`,
      kindsTable(measured),
      'Where the time of all these changes goes, in milliseconds after the API’s answer (the worker may be ahead of the answer):',
      stagesTable([...measured.values()].flat(), stepsOf(readFileSync(logFile(instance.directory, 'worker'), 'utf8'))),
    ].join('\n\n')
  } finally {
    await instance.remove()
  }
}

function kindsTable(measured: ReadonlyMap<string, Times[]>): string {
  const rows = [...measured].map(([name, times]) => {
    const answered = cells(times.map(time => time.answered - time.asked))
    const followed = cells(times.map(time => time.effective - time.answered))
    return `| ${name} | ${answered} | ${followed} |`
  })
  return [
    '| change of a member | the API answers: median | 99 % | traffic follows the answer: median | 99 % |',
    '| --- | ---: | ---: | ---: | ---: |',
    ...rows,
  ].join('\n')
}

type Step = { at: number; message: string }

/** What the worker logged, in order. */
function stepsOf(log: string): Step[] {
  return log
    .split('\n')
    .filter(line => line.startsWith('{'))
    .map(line => JSON.parse(line) as { time: string; msg: string })
    .map(({ time, msg }) => ({ at: Date.parse(time), message: msg }))
}

const STAGES = {
  'the worker has claimed and read the load balancer': 'converge begins',
  'the amphora is observed, planned and rendered': 'step begins',
  'the amphora has confirmed it': 'step done',
  'the load balancer is ACTIVE': 'load balancer converged',
} as const

function stagesTable(times: readonly Times[], steps: readonly Step[]): string {
  const rows = Object.entries(STAGES).map(([stage, message]) => {
    const after = times.flatMap(({ asked, answered }) => {
      const step = steps.find(candidate => candidate.at >= asked && candidate.message === message)
      return step === undefined ? [] : [step.at - answered]
    })
    return `| ${stage} | ${cells(after)} |`
  })
  rows.splice(2, 0, `| traffic follows | ${cells(times.map(({ answered, effective }) => effective - answered))} |`)
  return ['| stage | median | 99 % |', '| --- | ---: | ---: |', ...rows].join('\n')
}

function cells(values: readonly number[]): string {
  const sorted = values.toSorted((a, b) => a - b)
  return [0.5, 0.99].map(share => percentile(sorted, share).toFixed(0)).join(' | ')
}

/**
 * When the change showed in the answers: the member's first answer when it should serve; otherwise its last
 * answer before ten in a row came from others (two members take turns, so every other one would have been its
 * answer).
 */
export async function inEffectAt(url: string, member: string, serving: boolean): Promise<number> {
  const until = performance.now() + 20_000
  let last = performance.now()
  for (let others = 0; performance.now() < until; ) {
    const sent = performance.now()
    const name = await ask(url)
    if (serving && name === member) return performance.now()
    if (name === member) {
      others = 0
      last = performance.now()
    } else {
      if (others === 0) last = sent
      others += 1
      if (!serving && others === 10) return last
    }
  }
  throw new Error('The change did not take effect within 20 s.')
}

function ask(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const request = get(url, { agent: new Agent({ keepAlive: false }), timeout: 5_000 }, response => {
      let body = ''
      response.setEncoding('utf8').on('data', chunk => {
        body += chunk
      })
      response.on('end', () => resolve(body.trim()))
    })
    request.on('timeout', () => request.destroy(new Error('no answer within 5 s')))
    request.on('error', reject)
  })
}
