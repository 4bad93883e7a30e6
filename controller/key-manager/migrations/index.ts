import type { Migration } from '../../database/migrate.js'
import { keyManager } from './001-key-manager.js'
import { lanesByCost } from './002-lanes-by-cost.js'
import { renewals } from './004-renewals.js'

export const migrations: readonly Migration[] = [keyManager, lanesByCost, renewals]
