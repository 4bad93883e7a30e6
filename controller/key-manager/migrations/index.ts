import type { Migration } from '../../database/migrate.js'
import { keyManager } from './001-key-manager.js'
import { lanesByCost } from './002-lanes-by-cost.js'
import { bindings } from './003-bindings.js'
import { renewals } from './004-renewals.js'
import { acmeServer } from './005-acme-server.js'
import { acme } from './006-acme.js'

export const migrations: readonly Migration[] = [keyManager, lanesByCost, bindings, renewals, acmeServer, acme]
