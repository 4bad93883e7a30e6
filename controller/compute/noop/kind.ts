import { COMPUTE_FLAVOR, COMPUTE_ZONE } from '../driver.js'
import type { ComputeDriverKind } from '../kind.js'
import { createNoopComputeDriver } from './driver.js'

export const noopKind: ComputeDriverKind = {
  name: 'noop',
  runsMachines: false,
  options: {},
  flavors: [COMPUTE_FLAVOR],
  zones: [COMPUTE_ZONE],
  programs: [],
  check: async () => [],
  open: async () => createNoopComputeDriver(),
}
