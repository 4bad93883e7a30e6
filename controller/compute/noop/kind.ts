import type { ComputeDriverKind } from '../kind.js'
import { createNoopComputeDriver } from './driver.js'

export const noopKind: ComputeDriverKind = {
  name: 'noop',
  runsMachines: false,
  options: {},
  offers: null,
  size: () => ({ memoryMiB: null, cores: null }),
  images: 'optional',
  ownsManagement: false,
  startSeconds: 30,
  programs: [],
  check: async () => [],
  open: async () => createNoopComputeDriver(),
}
