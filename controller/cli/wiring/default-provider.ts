import type { Configuration } from '../../config/schema.js'
import { offeredProviders } from '../../provider/providers.js'
import { OperatorError } from '../operator-error.js'

/** @throws OperatorError when the default provider is not one that there is */
export function requireDefaultProvider({ load_balancer }: Configuration): void {
  if (offeredProviders.some(({ name }) => name === load_balancer.default_provider)) return
  const names = offeredProviders.map(({ name }) => name).join(' or ')
  throw new OperatorError(
    `load_balancer.default_provider: "${load_balancer.default_provider}" is not allowed: it must be ${names}.`,
  )
}
