import type { ServiceSchema } from '../../database/migrate.js'
import { migrations as identity } from '../../identity/migrations.js'
import { transferAuditLog } from '../../key-manager/audit/owner.js'
import { migrations as keyManager } from '../../key-manager/migrations/index.js'
import { migrations as loadBalancer } from '../../load-balancer/migrations/index.js'
import { migrations as network } from '../../network/migrations/index.js'

/** Every service with tables, in the order of creation. */
export const serviceSchemas: readonly ServiceSchema[] = [
  { schema: 'identity', migrations: identity },
  { schema: 'network', migrations: network },
  { schema: 'load_balancer', migrations: loadBalancer },
  { schema: 'key_manager', migrations: keyManager, transferOwnership: transferAuditLog },
]
