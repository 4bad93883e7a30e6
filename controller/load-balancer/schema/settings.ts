import type { Configuration } from '../../config/schema.js'

/** What the operator set for this API; rules take the part of it that they need. */
export type Settings = Configuration['load_balancer']
