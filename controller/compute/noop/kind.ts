import type { ComputeDriverKind } from '../kind.js'
import { createNoopComputeDriver, PLACEMENT } from './driver.js'

export const noopKind: ComputeDriverKind = {
  name: 'noop',
  runsMachines: false,
  options: {},
  flavors: [PLACEMENT.flavor],
  zones: [PLACEMENT.zone],
  programs: [],
  check: async () => [],
  open: async () => createNoopComputeDriver(),
}
