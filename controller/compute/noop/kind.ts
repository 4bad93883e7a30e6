import type { ComputeDriverKind } from '../kind.js'
import { createNoopComputeDriver } from './driver.js'

export const noopKind: ComputeDriverKind = {
  name: 'noop',
  runsMachines: false,
  options: {},
  offers: null,
  programs: [],
  check: async () => [],
  open: async () => createNoopComputeDriver(),
}
