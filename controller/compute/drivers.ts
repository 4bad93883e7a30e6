import { enrolledKind } from './enrolled/kind.js'
import type { ComputeDriverKind } from './kind.js'
import { namespaceKind } from './namespace/kind.js'
import { noopKind } from './noop/kind.js'
import { qemuKind } from './qemu/kind.js'

/** Every compute driver; the first is the default. */
export const computeDrivers: readonly [ComputeDriverKind, ...ComputeDriverKind[]] = [
  namespaceKind,
  qemuKind,
  enrolledKind,
  noopKind,
]

/** @throws Error for an unknown name */
export function computeDriver(name: string): ComputeDriverKind {
  const kind = computeDrivers.find(kind => kind.name === name)
  if (kind === undefined) throw new Error(`There is no compute driver ${name}.`)
  return kind
}
