import type { Placement } from './driver.js'
import { computeDriver, computeDrivers } from './drivers.js'
import { DEFAULT_IMAGE_TAG } from './images/tags.js'
import type { ComputeDriverKind } from './kind.js'
import type { ComputeSettings } from './options.js'

type Size = Pick<Placement, 'memoryMiB' | 'cores'>

/** A compute flavor: what the machines of a load balancer are. */
export type Flavor = Size &
  Pick<Placement, 'driver' | 'imageTag'> & {
    /** Amphorae kept ready. */
    warm: number
  }

/** For the machines of a driver that the settings have no more. */
const DEFAULT_START_SECONDS = 30

type DriverRules = Pick<ComputeDriverKind, 'offers' | 'images' | 'ownsManagement' | 'startSeconds'> & { size: Size }

/** What the settings say about machines. */
export type PlacementRules = {
  /** Driver of load balancers that name neither a compute flavor nor a compute zone of another driver. */
  driver: string
  /** `size` is that of machines whose flavor the settings do not have any more. */
  drivers: ReadonlyMap<string, DriverRules>
  flavors: ReadonlyMap<string, Flavor>
  /** By name; `driver` is null if the zone is one of every driver. */
  zones: ReadonlyMap<string, { driver: string | null }>
}

/** What a load balancer's flavor and availability zone ask for; null: nothing. */
export type PlacementRequest = { flavor: string | null; zone: string | null; imageTag: string | null }

export type Resolved = { placement: Placement } | { problem: string }

export function placementRules(settings: ComputeSettings): PlacementRules {
  const standard = computeDriver(settings.driver)
  const kinds = standard.runsMachines
    ? computeDrivers.filter(({ runsMachines, isUsed = () => true }) => runsMachines && isUsed(settings))
    : [standard]
  // Where hosts exist already, a free one is as ready as a warm amphora, and is chosen with the load balancer known.
  const warmOf = (flavor: string) =>
    flavor === settings.driver && !standard.ownsManagement ? settings.warm_amphorae : 0
  const builtIn = kinds.map(({ name, size }): [string, Flavor] => [
    name,
    { driver: name, ...size(settings), imageTag: null, warm: warmOf(name) },
  ])
  const written = Object.entries(settings.flavors).map(([name, flavor]): [string, Flavor] => {
    const { driver, memory, cores, image_tag: imageTag = null, warm = warmOf(name) } = flavor
    const size = computeDriver(driver).size(settings)
    return [name, { driver, memoryMiB: memory ?? size.memoryMiB, cores: cores ?? size.cores, imageTag, warm }]
  })
  const zones = Object.entries(settings.zones).map(([name, { driver = null }]) => [name, { driver }] as const)
  return {
    driver: settings.driver,
    drivers: new Map(kinds.map(kind => [kind.name, { ...kind, size: kind.size(settings) }])),
    flavors: new Map([...builtIn, ...written]),
    zones: new Map([
      ...kinds.flatMap(({ offers }) => (offers?.zones ?? []).map(name => [name, { driver: null }] as const)),
      ...zones,
    ]),
  }
}

/** The drivers that the settings name: of load balancers without a compute flavor, of compute flavors and of zones. */
export function namedDrivers({ driver, flavors, zones }: ComputeSettings): ComputeDriverKind[] {
  const standard = computeDriver(driver)
  if (!standard.runsMachines) return [standard]
  const others = [...Object.values(flavors), ...Object.values(zones)].flatMap(one => one.driver ?? [])
  return [...new Set([driver, ...others])].map(computeDriver)
}

/**
 * Decides on what and where the machines of a load balancer run. Pure.
 * @returns a sentence instead if what it asks for does not exist or does not go together
 */
export function resolvePlacement(rules: PlacementRules, request: PlacementRequest): Resolved {
  const { zone, imageTag } = request
  const zoneDriver = (zone === null ? null : rules.zones.get(zone)?.driver) ?? null
  const name = request.flavor ?? zoneDriver ?? rules.driver
  if (rules.drivers.get(rules.driver)?.offers === null) {
    return { placement: { driver: rules.driver, flavor: name, zone, memoryMiB: null, cores: null, imageTag } }
  }
  const flavor = rules.flavors.get(name)
  if (flavor === undefined) {
    return { problem: `There is no compute flavor ${name}, only ${[...rules.flavors.keys()].join(', ')}.` }
  }
  const { driver, memoryMiB, cores } = flavor
  const kind = rules.drivers.get(driver)
  if (zone !== null && !rules.zones.has(zone) && kind?.offers?.zones !== null) {
    return { problem: `There is no compute zone ${zone}, only ${[...rules.zones.keys()].join(', ')}.` }
  }
  if (zoneDriver !== null && zoneDriver !== driver) {
    return {
      problem: `The compute flavor ${name} has machines of the driver ${driver}, but the compute zone ${zone} those of ${zoneDriver}.`,
    }
  }
  const tag = imageTag ?? flavor.imageTag
  if (tag !== null && kind?.images === 'none') {
    return { problem: `Machines of the compute flavor ${name} run no image, so there is none with the tag ${tag}.` }
  }
  return { placement: { driver, flavor: name, zone, memoryMiB, cores, imageTag: tag } }
}

/** The controller host to which machines of a driver are bound: the one that makes them; null if it does not matter. */
export const boundTo = ({ drivers }: PlacementRules, driver: string, hostId: string | null): string | null =>
  drivers.get(driver)?.ownsManagement === true ? null : hostId

/** Whether an amphora can be taken from its networks without its machine's doing. */
export const canBeCutOff = ({ drivers }: PlacementRules, driver: string): boolean =>
  drivers.get(driver)?.ownsManagement !== true

/**
 * Why a placement has no image to run; null if it has one or needs none. Pure.
 * @param tags those of the images that there are
 */
export function imageProblem(rules: PlacementRules, placement: Placement, tags: readonly string[]): string | null {
  const { driver, flavor, imageTag } = placement
  const needed = rules.drivers.get(driver)?.images === 'required' ? DEFAULT_IMAGE_TAG : null
  const tag = imageTag ?? needed
  if (tag === null || tags.includes(tag) || rules.drivers.get(driver)?.offers === null) return null
  const others = tags.length === 0 ? 'none at all' : `only ${tags.join(', ')}`
  return `Machines of the compute flavor ${flavor} run the amphora image with the tag ${tag}, but there is ${others}.`
}

/**
 * The image that a machine made now would run; null if none. Pure.
 * @param newest ids of the images that this host has, by tag
 */
export function imageOf(
  { drivers }: PlacementRules,
  newest: ReadonlyMap<string, string>,
  { driver, imageTag }: Pick<Placement, 'driver' | 'imageTag'>,
): string | null {
  const kind = drivers.get(driver)
  if (kind === undefined || kind.images === 'none' || kind.offers === null) return null
  return newest.get(imageTag ?? DEFAULT_IMAGE_TAG) ?? null
}

/** What an amphora's row records of its placement. */
export type RecordedPlacement = Pick<Placement, 'driver' | 'flavor' | 'zone' | 'imageTag'>

/**
 * The placement of an amphora that has a row: it keeps its driver for life, and has the size that its flavor has today,
 * or the driver's if the settings have the flavor no more. Pure.
 */
export function placementOf(rules: PlacementRules, recorded: RecordedPlacement): Placement {
  const flavor = rules.flavors.get(recorded.flavor)
  const size = flavor?.driver === recorded.driver ? flavor : rules.drivers.get(recorded.driver)?.size
  return { ...recorded, memoryMiB: size?.memoryMiB ?? null, cores: size?.cores ?? null }
}

/** How long the agent of a machine of this driver may take to answer after the machine's start. Pure. */
export const startLimitMs = ({ drivers }: PlacementRules, driver: string): number =>
  (drivers.get(driver)?.startSeconds ?? DEFAULT_START_SECONDS) * 1000

/**
 * Silence after which a machine that was never configured is restarted, if its kind starts more slowly than others: an
 * emulated one on a busy host says nothing for a while. Pure.
 */
export const patienceSeconds = (rules: PlacementRules, driver: string): number => {
  const seconds = startLimitMs(rules, driver) / 1000
  return seconds > DEFAULT_START_SECONDS ? seconds : 0
}
