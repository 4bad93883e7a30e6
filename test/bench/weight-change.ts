import { Agent, get } from 'node:http'
import { startInstance } from './instance.js'
import { percentile } from './measure.js'

const BASE = '/v2.0/lbaas'
const ROUNDS = 20

type Member = { id: string; name: string; weight: number }

/**
 * How long it takes from asking for a member's weight 0 until the load balancer sends nothing to it any more, and from asking for weight 1
 * until it does again; over a real amphora. @returns a table, as Markdown
 */
export async function benchWeightChange(root: string): Promise<string> {
  const instance = await startInstance(root, {}, 28_200)
  try {
    await instance.krater('demo')
    const { api } = instance
    const { loadbalancers } = (await api.request('load-balancer', 'GET', `${BASE}/loadbalancers?name=krater-demo`)) as {
      loadbalancers: { vip_address: string; pools: { id: string }[] }[]
    }
    const [balancer] = loadbalancers
    const pool = balancer?.pools[0]?.id ?? ''
    const url = `http://${balancer?.vip_address}/`
    const path = `${BASE}/pools/${pool}/members`
    const { members } = (await api.request('load-balancer', 'GET', path)) as { members: Member[] }
    const [member] = members
    if (member === undefined) throw new Error('The demonstration has no member.')
    const answered: number[] = []
    const effective: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      const weight = round % 2
      const asked = performance.now()
      await api.request('load-balancer', 'PUT', `${path}/${member.id}`, { member: { weight } })
      answered.push(performance.now() - asked)
      effective.push((await inEffectAt(url, member.name, weight > 0)) - asked)
    }
    const cells = (values: number[]) => {
      const sorted = [...values].sort((a, b) => a - b)
      return [0.5, 0.9, 1].map(share => percentile(sorted, share).toFixed(0)).join(' | ')
    }
    return [
      `A member's weight goes to 0 and back to 1, ${ROUNDS} changes, one real amphora, requests through the VIP all the time.`,
      '| milliseconds after the request was sent | median | 90 % | worst |\n| --- | ---: | ---: | ---: |\n' +
        `| the API has answered | ${cells(answered)} |\n| traffic follows | ${cells(effective)} |`,
    ].join('\n\n')
  } finally {
    await instance.remove()
  }
}

/**
 * When the change showed in the answers: the first answer of the member when it should serve; when it should not, the last one that it gave
 * before ten in a row came from others (two members take turns, so one in two would have been its).
 */
async function inEffectAt(url: string, member: string, serving: boolean): Promise<number> {
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
  throw new Error('The change of weight did not take effect within 20 s.')
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
