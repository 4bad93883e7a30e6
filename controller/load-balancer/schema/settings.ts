import type { LoadBalancerSettings } from '../options.js'

/** What the operator set for this API; rules take the part of it that they need. */
export type Settings = LoadBalancerSettings
