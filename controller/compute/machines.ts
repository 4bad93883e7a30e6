import type { Logger } from '../log/log.js'
import { type ComputeDriver, ComputeUnavailable, type Machine } from './driver.js'
import type { ComputeContext, ComputeDriverKind } from './kind.js'

export type MachinesOptions = {
  kinds: readonly ComputeDriverKind[]
  context: ComputeContext
  /** Name of an amphora's driver according to its row; null if it has no row. */
  driverOf: (amphoraId: string) => Promise<string | null>
  log: Logger
}

/** Time after which a driver that could not be opened is tried again. */
const RETRY_MS = 10_000

/**
 * The machines of several drivers as those of one. Each is opened when it is first needed. An amphora's row says which
 * driver has its machine; one without a row belongs to the driver that has a machine for it. A driver that cannot be
 * opened or fails affects its own machines only.
 */
export function createMachines({ kinds, context, driverOf, log }: MachinesOptions): ComputeDriver {
  const openings = new Map<string, { driver: Promise<ComputeDriver>; failedAt: number | null }>()
  const lastLists = new Map<string, Machine[]>()

  function open(name: string): Promise<ComputeDriver> {
    const known = openings.get(name)
    if (known !== undefined && (known.failedAt === null || performance.now() - known.failedAt < RETRY_MS)) {
      return known.driver
    }
    const kind = kinds.find(one => one.name === name)
    if (kind === undefined) return Promise.reject(new ComputeUnavailable(`There is no compute driver ${name}.`))
    const opening: { driver: Promise<ComputeDriver>; failedAt: number | null } = {
      driver: kind.open(context),
      failedAt: null,
    }
    opening.driver.catch((error: unknown) => {
      opening.failedAt = performance.now()
      log.warn({ driver: name, err: error }, 'a compute driver cannot be used on this host')
    })
    openings.set(name, opening)
    return opening.driver
  }

  /** Every driver that this host can use. */
  async function usable(): Promise<ComputeDriver[]> {
    const opened = await Promise.allSettled(kinds.map(({ name }) => open(name)))
    return opened.flatMap(one => (one.status === 'fulfilled' ? [one.value] : []))
  }

  /** The driver of an amphora's machine; null if there is no trace of either. */
  async function driverWith(amphoraId: string): Promise<ComputeDriver | null> {
    const recorded = await driverOf(amphoraId)
    if (recorded !== null) return open(recorded)
    for (const driver of await usable()) if ((await driver.find(amphoraId)) !== null) return driver
    return null
  }

  async function requireDriver(amphoraId: string): Promise<ComputeDriver> {
    const driver = await driverWith(amphoraId)
    if (driver === null) throw new Error(`There is no machine of amphora ${amphoraId}.`)
    return driver
  }

  return {
    name: kinds.map(({ name }) => name).join(', '),
    create: async spec => (await open(spec.placement.driver)).create(spec),
    find: async amphoraId => (await driverWith(amphoraId))?.find(amphoraId) ?? null,
    list: async ({ isComplete } = { isComplete: false }) => {
      const drivers = isComplete ? await Promise.all(kinds.map(({ name }) => open(name))) : await usable()
      const lists = drivers.map(async driver => {
        try {
          const machines = await driver.list()
          lastLists.set(driver.name, machines)
          return machines
        } catch (error) {
          if (isComplete) throw error
          // To the caller, a machine that is missing from the list has ended.
          log.warn({ driver: driver.name, err: error }, 'listing machines failed; they count as unchanged')
          return lastLists.get(driver.name) ?? []
        }
      })
      return (await Promise.all(lists)).flat()
    },
    inspect: async amphoraId => (await driverWith(amphoraId))?.inspect(amphoraId) ?? null,
    delete: async amphoraId => (await driverWith(amphoraId))?.delete(amphoraId),
    plug: async (amphoraId, port, projectId) => (await requireDriver(amphoraId)).plug(amphoraId, port, projectId),
    unplug: async (amphoraId, portId) => (await driverWith(amphoraId))?.unplug(amphoraId, portId),
    pluggedPorts: async amphoraId => (await driverWith(amphoraId))?.pluggedPorts(amphoraId) ?? [],
    tend: async () => {
      for (const driver of await usable()) await driver.tend?.()
    },
    brokenInterfaces: async () => {
      const found = (await usable()).map(driver =>
        driver.brokenInterfaces().catch((error: unknown) => {
          log.warn({ driver: driver.name, err: error }, 'looking at the interfaces of machines failed')
          return []
        }),
      )
      return (await Promise.all(found)).flat()
    },
  }
}
