import type { Configuration } from '../../config/schema.js'
import { providerCapabilities } from '../../provider/providers.js'
import { OperatorError } from '../operator-error.js'

/** @throws OperatorError when the default provider does not exist */
export function requireDefaultProvider({ load_balancer }: Configuration): void {
  if (providerCapabilities.some(({ name }) => name === load_balancer.default_provider)) return
  const names = providerCapabilities.map(({ name }) => name).join(' or ')
  throw new OperatorError(
    `load_balancer.default_provider: "${load_balancer.default_provider}" is not allowed: it must be ${names}.`,
  )
}
