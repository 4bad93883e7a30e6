import type { ComputeDriverKind } from './kind.js'
import { namespaceKind } from './namespace/kind.js'
import { noopKind } from './noop/kind.js'

/** Every compute driver; the first is the default. */
export const computeDrivers: readonly [ComputeDriverKind, ...ComputeDriverKind[]] = [namespaceKind, noopKind]

/** Values that flavors and availability zones may use, whichever driver is configured. */
export const COMPUTE_FLAVORS = [...new Set(computeDrivers.flatMap(({ flavors }) => flavors))]
export const COMPUTE_ZONES = [...new Set(computeDrivers.flatMap(({ zones }) => zones))]

/** @throws Error for an unknown name */
export function computeDriver(name: string): ComputeDriverKind {
  const kind = computeDrivers.find(kind => kind.name === name)
  if (kind === undefined) throw new Error(`There is no compute driver ${name}.`)
  return kind
}
