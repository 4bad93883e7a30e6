import { imageProblem, type PlacementRequest, type PlacementRules, resolvePlacement } from './placement.js'

/** What flavors and availability zones may name. */
export type ComputeOffers = {
  /** Null: any. */
  flavors: readonly string[] | null
  zones: readonly string[] | null
  /** Tags of the images that there are now; null: any. */
  imageTags: () => readonly string[] | null
  /** Whether some machines have a choice that only machines can have, such as a management network or volumes. */
  runsMachines: boolean
  /** Why there are no such machines, as a sentence; null if there are. */
  problem: (request: PlacementRequest) => string | null
}

/** @param imageTags reads the tags of the images that there are */
export function computeOffers(rules: PlacementRules, imageTags: () => readonly string[]): ComputeOffers {
  const drivers = [...rules.drivers.values()]
  const runsMachines = drivers.every(({ offers }) => offers !== null)
  return {
    flavors: runsMachines ? [...rules.flavors.keys()] : null,
    zones: drivers.some(({ offers }) => offers === null || offers.zones === null) ? null : [...rules.zones.keys()],
    imageTags: () => (runsMachines ? imageTags() : null),
    runsMachines,
    problem: request => {
      const resolved = resolvePlacement(rules, request)
      return 'problem' in resolved ? resolved.problem : imageProblem(rules, resolved.placement, imageTags())
    },
  }
}
