import { type Finding, fault, ok } from '../../../checks/finding.js'
import { imageTags } from '../../../compute/images/tags.js'
import { imageProblem, namedDrivers, type PlacementRules, placementRules } from '../../../compute/placement.js'
import type { Instance } from '../../wiring/instance.js'

/** Checks every compute driver that the settings name, and that the images of its flavors are there. */
export async function checkCompute({ config: { compute }, directory }: Instance): Promise<Finding[]> {
  const named = namedDrivers(compute)
  const checked = await Promise.all(named.map(({ check }) => check(compute)))
  const names = new Set(named.map(({ name }) => name))
  return [...checked.flat(), ...imageFindings(placementRules(compute), names, imageTags(directory))]
}

/** Pure. @param tags those of the images that there are */
export function imageFindings(rules: PlacementRules, drivers: ReadonlySet<string>, tags: readonly string[]): Finding[] {
  const flavors = [...rules.flavors].filter(([, { driver }]) => drivers.has(driver))
  const problems = flavors.flatMap(
    ([flavor, placement]) => imageProblem(rules, { ...placement, flavor, zone: null }, tags) ?? [],
  )
  const remedy = 'npm run images, then krater image import images/out; krater image list shows what is there'
  if (problems.length > 0) return problems.map(problem => fault('images', problem.replace(/\.$/, ''), remedy))
  return tags.length === 0 ? [] : [ok('images', `there are amphora images with the tags ${tags.join(', ')}`)]
}
