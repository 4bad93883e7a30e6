import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'

/** What one machine may use of its host. `processors` may be a fraction; threads count as processes. */
export type Limits = { memoryBytes: number; processors: number; processes: number }

/** How far limits are in force, and for each that is not, why. */
export type Enforced = {
  /** The control groups that the machine's first process has to join. */
  groups: string[]
  inForce: Partial<Limits>
  lacking: { what: string; why: string }[]
}

/** Version 1 has a hierarchy for each controller or a few of them, version 2 one for all. */
type Hierarchy = { path: string; version: 1 | 2; controllers: string[] }

type Controller = {
  name: 'memory' | 'cpu' | 'pids'
  what: string
  limit: keyof Limits
  /** Files of a group and what is written into them, in this order. */
  settings: (limit: number) => Record<Hierarchy['version'], [file: string, value: string][]>
}

const PERIOD_US = 100_000
const REMOVE_LIMIT_MS = 30_000

const CONTROLLERS: readonly Controller[] = [
  {
    name: 'memory',
    what: 'memory',
    limit: 'memoryBytes',
    settings: bytes => ({
      // Swap would be memory by another name.
      1: [
        ['memory.limit_in_bytes', `${bytes}`],
        ['memory.memsw.limit_in_bytes', `${bytes}`],
      ],
      2: [
        ['memory.max', `${bytes}`],
        ['memory.swap.max', '0'],
      ],
    }),
  },
  {
    name: 'cpu',
    what: 'processor',
    limit: 'processors',
    settings: processors => ({
      1: [
        ['cpu.cfs_period_us', `${PERIOD_US}`],
        ['cpu.cfs_quota_us', `${Math.round(processors * PERIOD_US)}`],
      ],
      2: [['cpu.max', `${Math.round(processors * PERIOD_US)} ${PERIOD_US}`]],
    }),
  },
  {
    name: 'pids',
    what: 'processes',
    limit: 'processes',
    settings: processes => ({ 1: [['pids.max', `${processes}`]], 2: [['pids.max', `${processes}`]] }),
  },
]

/** What a group weighs among its neighbours: `unit` is as much as one process. */
const WEIGHT = {
  1: { file: 'cpu.shares', unit: 1024, most: 262_144 },
  2: { file: 'cpu.weight', unit: 100, most: 10_000 },
} as const

/** Kernels without swap accounting do not have these. */
const OPTIONAL = ['memory.memsw.limit_in_bytes', 'memory.swap.max']

/**
 * Makes the control groups of a machine, `instance/machine` in each hierarchy, and sets its limits. What the host does not offer or permit is left
 * out, and said. A group of that name must not exist.
 */
export function enforce(instance: string, machine: string, limits: Limits): Enforced {
  const enforced: Enforced = { groups: [], inForce: {}, lacking: [] }
  const known = hierarchies()
  for (const controller of CONTROLLERS) {
    const { name, what, limit } = controller
    const hierarchy = known.find(({ controllers }) => controllers.includes(name))
    if (hierarchy === undefined) {
      enforced.lacking.push({ what, why: `the controller ${name} is mounted nowhere` })
      continue
    }
    try {
      const group = limitGroup(hierarchy, controller, limits[limit], join(instance, machine))
      enforced.inForce[limit] = limits[limit]
      if (!enforced.groups.includes(group)) enforced.groups.push(group)
    } catch (error) {
      enforced.lacking.push({ what, why: error instanceof Error ? error.message : String(error) })
    }
  }
  return enforced
}

/** Removes the control groups of a machine whose processes have ended. @throws Error when one will not go */
export async function release(instance: string, machine: string): Promise<void> {
  for (const { path } of hierarchies()) {
    const group = join(path, instance, machine)
    for (const since = performance.now(); !isGone(group); await wait(5)) {
      if (performance.now() - since > REMOVE_LIMIT_MS) throw new Error(`The control group ${group} cannot be removed.`)
    }
    isGone(dirname(group))
  }
}

/** Version 1 first: a controller that is mounted there is lost to version 2. */
function hierarchies(): Hierarchy[] {
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n')
  return mounts
    .flatMap((line): Hierarchy[] => {
      const [, path = '', type, options = ''] = line.split(' ')
      if (type === 'cgroup') return [{ path, version: 1, controllers: options.split(',') }]
      if (type === 'cgroup2') return [{ path, version: 2, controllers: words(join(path, 'cgroup.controllers')) }]
      return []
    })
    .sort((one, other) => one.version - other.version)
}

/** @returns the path of the group */
function limitGroup(hierarchy: Hierarchy, controller: Controller, limit: number, name: string): string {
  const group = join(hierarchy.path, name)
  const attempt = () => {
    makeGroup(hierarchy, controller.name, group)
    for (const [file, value] of controller.settings(limit)[hierarchy.version]) {
      if (!OPTIONAL.includes(file) || existsSync(join(group, file))) writeFileSync(join(group, file), value)
    }
  }
  try {
    attempt()
  } catch (error) {
    // The last machine of the instance may just have gone, and the group above with it.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    attempt()
  }
  return group
}

function makeGroup({ path, version }: Hierarchy, controller: Controller['name'], group: string): void {
  const parent = dirname(group)
  if (version === 2) delegate(path, controller)
  mkdirSync(parent, { recursive: true })
  if (version === 2) delegate(parent, controller)
  if (controller === 'cpu') {
    // All machines together weigh as much as one busy process on each processor does.
    const { file, unit, most } = WEIGHT[version]
    writeFileSync(join(parent, file), `${Math.min(most, unit * availableParallelism())}`)
  }
  mkdirSync(group, { recursive: true })
}

/** Lets the groups below one use a controller. */
function delegate(group: string, controller: string): void {
  const file = join(group, 'cgroup.subtree_control')
  if (!words(file).includes(controller)) writeFileSync(file, `+${controller}`)
}

/** None when another mount has covered the file. */
const words = (file: string): string[] => (existsSync(file) ? readFileSync(file, 'utf8').trim().split(/\s+/) : [])

/** Tries to remove a group. @returns false while something is in it */
function isGone(group: string): boolean {
  try {
    rmdirSync(group)
    return true
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // Where nothing can be made, as in a container, nothing of ours is left.
    if (code === 'ENOENT' || code === 'EROFS') return true
    if (code === 'EBUSY' || code === 'ENOTEMPTY') return false
    throw error
  }
}
