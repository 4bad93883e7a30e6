import type { NetworkDriver } from '../../network/driver.js'
import type { Provider } from '../provider.js'
import { releaseVipPort } from '../vip-port.js'

/**
 * Does nothing and reports every change as applied, for testing clients.
 * @param network if given, deleting a load balancer releases its VIP port
 */
export function createNoopProvider(network?: NetworkDriver): Provider {
  return {
    name: 'noop_driver',
    description: 'Accepts every load balancer and implements none.',
    converge: async (_claim, tree) => {
      if (tree.change === 'delete' && network !== undefined) await releaseVipPort(network, tree)
    },
  }
}
