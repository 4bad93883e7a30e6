import type { NetworkDriver } from '../../network/driver.js'
import type { Provider } from '../provider.js'
import { releaseVipPort } from '../vip-port.js'

/** Every change is in effect at once and nothing is done, for clients' tests. @param network whose VIP ports are released on deletion */
export function createNoopProvider(network?: NetworkDriver): Provider {
  return {
    name: 'noop_driver',
    description: 'Accepts every load balancer and carries nothing out.',
    converge: async (_claim, tree) => {
      if (tree.change === 'delete' && network !== undefined) await releaseVipPort(network, tree)
    },
  }
}
