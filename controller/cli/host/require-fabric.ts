import { networkDrivers } from '../../network/drivers.js'
import { OperatorError } from '../operator-error.js'
import { networkDriverOf } from '../wiring/drivers.js'
import { openInstance } from '../wiring/instance.js'

/** @throws OperatorError when the network driver builds no networks on this host */
export function requireFabric(directory: string): void {
  const { name, onHost } = networkDriverOf(openInstance(directory))
  if (onHost) return
  const others = networkDrivers.filter(driver => driver.onHost).map(driver => driver.name)
  throw new OperatorError(
    `network.driver is ${name}, which has no networks on this host. Programs can be attached with ${others.join(' or ')}.`,
  )
}
