import type { ComputeDriverKind } from '../kind.js'
import { createNoopComputeDriver } from './driver.js'

export const noopKind: ComputeDriverKind = {
  name: 'noop',
  runsMachines: false,
  options: {},
  programs: [],
  check: async () => [],
  open: async () => createNoopComputeDriver(),
}
