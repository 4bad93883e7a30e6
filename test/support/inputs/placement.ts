import type { Placement } from '../../../controller/compute/driver.js'
import { computeOffers } from '../../../controller/compute/offers.js'
import { placementRules } from '../../../controller/compute/placement.js'
import { configurationSchema } from '../../../controller/config/schema.js'

/** Of a load balancer without a flavor, with the default settings. */
export const PLACEMENT: Placement = {
  driver: 'namespace',
  flavor: 'namespace',
  zone: null,
  memoryMiB: null,
  cores: null,
  imageTag: null,
}

/** What the row of an amphora with this placement has. */
export const PLACEMENT_COLUMNS = { compute_driver: 'namespace', compute_flavor: 'namespace' }

/** @param tags those of the images that there are */
export const offersOf = (compute: object = {}, tags: readonly string[] = []) =>
  computeOffers(rulesOf(compute), () => tags)

/** @param compute the settings `compute` */
export const rulesOf = (compute: object = {}) => placementRules(configurationSchema.parse({ compute }).compute)
