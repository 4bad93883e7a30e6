import type { Migration } from '../../database/migrate.js'
import { keyManager } from './001-key-manager.js'
import { lanesByCost } from './002-lanes-by-cost.js'

export const migrations: readonly Migration[] = [keyManager, lanesByCost]
