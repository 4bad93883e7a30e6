import type { Configuration } from '../../config/schema.js'
import { amphoraOffer, octaviaOffer } from '../../provider/amphora/capabilities.js'
import { noopOffer } from '../../provider/noop/capabilities.js'
import { OperatorError } from '../operator-error.js'

/** The providers that the API offers and the worker implements. */
export const offeredProviders = [amphoraOffer, octaviaOffer, noopOffer] as const

export function requireDefaultProvider({ load_balancer }: Configuration): void {
  if (offeredProviders.some(({ name }) => name === load_balancer.default_provider)) return
  const names = offeredProviders.map(({ name }) => name).join(' or ')
  throw new OperatorError(
    `load_balancer.default_provider: "${load_balancer.default_provider}" is not allowed: it must be ${names}.`,
  )
}
