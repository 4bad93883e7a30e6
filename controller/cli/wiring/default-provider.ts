import type { Configuration } from '../../config/schema.js'
import { PROVIDER_NAMES } from '../../provider/providers.js'
import { OperatorError } from '../operator-error.js'

/** @throws OperatorError when the default provider does not exist, or not with these networks */
export function requireDefaultProvider({ load_balancer, network }: Configuration): void {
  if (load_balancer.default_provider === 'ovn' && network.driver !== 'ovn')
    throw new OperatorError('load_balancer.default_provider: "ovn" needs networks in OVN: set network.driver to ovn.')
  if (PROVIDER_NAMES.includes(load_balancer.default_provider)) return
  const names = PROVIDER_NAMES.join(' or ')
  throw new OperatorError(
    `load_balancer.default_provider: "${load_balancer.default_provider}" is not allowed: it must be ${names}.`,
  )
}
