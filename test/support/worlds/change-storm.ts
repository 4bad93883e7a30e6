import { setTimeout as sleep } from 'node:timers/promises'
import { signIn } from '../../../controller/cli/api-client.js'

/** A kind of change. */
export type Acknowledged = 'description' | 'pool'

/**
 * A process that changes a load balancer without a pause until it is killed, on the host whose state directory is its
 * argument. It prints a line for each change that the API has acknowledged, once it has.
 */
const [directory = '', loadBalancerId = ''] = process.argv.slice(2)
const say = (kind: Acknowledged, number: number) => process.stdout.write(`${kind} ${number}\n`)

async function untilAnswered<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work()
    } catch {
      await sleep(100)
    }
  }
}

const api = await untilAnswered(() => signIn(directory, 'krater'))
for (let number = 1; ; number++) {
  const acknowledged = await api
    .request('load-balancer', 'PUT', `/v2/lbaas/loadbalancers/${loadBalancerId}`, {
      loadbalancer: { description: `change ${number}` },
    })
    .then(
      () => true,
      () => false,
    )
  if (acknowledged) say('description', number)
  if (number % 10 === 0) {
    const created = await api
      .request('load-balancer', 'POST', '/v2/lbaas/pools', {
        pool: {
          loadbalancer_id: loadBalancerId,
          name: `storm-${number}`,
          protocol: 'TCP',
          lb_algorithm: 'ROUND_ROBIN',
        },
      })
      .then(
        () => true,
        () => false,
      )
    if (created) say('pool', number)
  }
  await sleep(100)
}
