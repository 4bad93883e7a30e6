import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { rmdir, writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'

/** Resources of the host that one machine may use. `processors` may be a fraction; threads count as processes. */
export type Limits = { memoryBytes: number; processors: number; processes: number }

/** The limits in force, and for each other one the reason why it is not. */
export type Enforced = {
  /** The control groups that the machine's first process must join. */
  groups: string[]
  inForce: Partial<Limits>
  lacking: { what: string; why: string }[]
}

/** cgroup v1 has one hierarchy per controller or set of controllers; v2 has one for all. */
type Hierarchy = { path: string; version: 1 | 2; controllers: string[] }

type Controller = {
  name: 'memory' | 'cpu' | 'pids'
  what: string
  limit: keyof Limits
  /** A group's files and their values, in the order of writing. */
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
      // Memory and swap together are limited too, or the machine could exceed its limit by swapping.
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

/** CPU weight of a group among its siblings. `unit` is the default weight, equal to that of one process. */
const WEIGHT = {
  1: { file: 'cpu.shares', unit: 1024, max: 262_144 },
  2: { file: 'cpu.weight', unit: 100, max: 10_000 },
} as const

/**
 * All machines together weigh as much as this many sibling groups (services, sessions), or, if processes are not
 * grouped, as much as one busy process per processor. They carry the traffic, and they work in short bursts, to
 * which the kernel gives less than their weight: next to a busy API, machines with the weight of one group got a
 * twentieth of two processors instead of half.
 */
const GROUPS_OUTWEIGHED = 4

/** Missing on kernels without swap accounting. */
const OPTIONAL = ['memory.memsw.limit_in_bytes', 'memory.swap.max']

/**
 * Path of a machine's group in each hierarchy: `instance/project/machine`. All projects have equal weight, and so
 * have all machines of a project.
 */
export type Place = {
  instance: string
  /** Null for a machine that waits for a project. */
  project: string | null
  machine: string
}

const WAITING = 'waiting'
const groupPath = ({ instance, project, machine }: Place): string =>
  join(instance, project === null ? WAITING : `project-${encodeURIComponent(project)}`, machine)

/**
 * Creates a machine's control groups and sets its limits. Skips and reports what the host does not offer or permit. The
 * machine must not have a group yet.
 */
export function enforce(place: Place, limits: Limits, known = hierarchies()): Enforced {
  const enforced: Enforced = { groups: [], inForce: {}, lacking: [] }
  for (const controller of CONTROLLERS) {
    const { name, what, limit } = controller
    const hierarchy = known.find(({ controllers }) => controllers.includes(name))
    if (hierarchy === undefined) {
      enforced.lacking.push({ what, why: `the cgroup controller ${name} is not mounted, or another mount hides it` })
      continue
    }
    try {
      const group = limitGroup(hierarchy, controller, limits[limit], place)
      enforced.inForce[limit] = limits[limit]
      if (!enforced.groups.includes(group)) enforced.groups.push(group)
    } catch (error) {
      enforced.lacking.push({ what, why: error instanceof Error ? error.message : String(error) })
    }
  }
  return enforced
}

/**
 * Moves a warm machine and its limits to a project's group; from now on it uses the project's share of the
 * processors. If the cpu controller has its own hierarchy, the other limits stay where they are: memory in use
 * does not move. Safe to repeat, even after an interruption.
 * @throws Error if a process of the machine cannot be moved
 */
export async function assign(place: Place): Promise<void> {
  for (const hierarchy of hierarchies().filter(({ controllers }) => controllers.includes('cpu'))) {
    const desired = join(hierarchy.path, groupPath(place))
    for (const group of groupsOf(hierarchy, place).filter(group => group !== desired)) {
      for (const controller of CONTROLLERS) {
        for (const [file] of controller.settings(0)[hierarchy.version]) {
          if (!existsSync(join(group, file))) continue
          makeGroup(hierarchy, controller.name, place)
          writeFileSync(join(desired, file), readFileSync(join(group, file)))
        }
      }
      await removeWhenEmpty(group, () => moveProcesses(group, desired))
      await tryRemove(dirname(group))
    }
  }
}

/** Removes the control groups of a machine whose processes have ended. @throws Error if one cannot be removed */
export async function release(place: Pick<Place, 'instance' | 'machine'>): Promise<void> {
  for (const hierarchy of hierarchies()) {
    for (const group of groupsOf(hierarchy, place)) await removeWhenEmpty(group)
    const top = join(hierarchy.path, place.instance)
    for (const parent of [...groupsIn(top), top]) await tryRemove(parent)
  }
}

/** A machine's groups in a hierarchy. An earlier version placed them directly below the instance's group. */
function groupsOf({ path }: Hierarchy, { instance, machine }: Pick<Place, 'instance' | 'machine'>): string[] {
  const top = join(path, instance)
  return [top, ...groupsIn(top)].map(parent => join(parent, machine)).filter(group => existsSync(group))
}

function groupsIn(group: string): string[] {
  try {
    const entries = readdirSync(group, { withFileTypes: true })
    return entries.filter(entry => entry.isDirectory()).map(({ name }) => join(group, name))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

/** Removes a group, waiting until it is empty. @param empty called before each attempt */
async function removeWhenEmpty(group: string, empty: () => Promise<void> = async () => undefined): Promise<void> {
  for (const since = performance.now(); ; await wait(5)) {
    await empty()
    if (await tryRemove(group)) return
    if (performance.now() - since > REMOVE_LIMIT_MS)
      throw new Error(`The control group ${group} cannot be removed: it is not empty.`)
  }
}

/** A process started during the move stays behind, so callers repeat this until the group is empty. */
async function moveProcesses(from: string, to: string): Promise<void> {
  // Each move waits for all processors of the host; concurrent moves wait only once.
  const moves = words(join(from, 'cgroup.procs')).map(pid => writeFile(join(to, 'cgroup.procs'), pid))
  for (const move of await Promise.allSettled(moves)) {
    if (move.status === 'rejected' && (move.reason as NodeJS.ErrnoException).code !== 'ESRCH') throw move.reason
  }
}

/**
 * v1 first: a controller mounted there is unavailable in v2. Without those that another mount hides, as `ip netns exec`
 * does: Node.js never ends creating a directory and its parents where sysfs permits none.
 */
function hierarchies(): Hierarchy[] {
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n')
  return mounts
    .flatMap((line): Hierarchy[] => {
      const [, path = '', type, options = ''] = line.split(' ')
      if (!existsSync(join(path, 'cgroup.procs'))) return []
      if (type === 'cgroup') return [{ path, version: 1, controllers: options.split(',') }]
      if (type === 'cgroup2') return [{ path, version: 2, controllers: words(join(path, 'cgroup.controllers')) }]
      return []
    })
    .sort((one, other) => one.version - other.version)
}

/** @returns the path of the group */
function limitGroup(hierarchy: Hierarchy, controller: Controller, limit: number, place: Place): string {
  const group = makeGroup(hierarchy, controller.name, place)
  for (const [file, value] of controller.settings(limit)[hierarchy.version]) {
    if (!OPTIONAL.includes(file) || existsSync(join(group, file))) writeFileSync(join(group, file), value)
  }
  return group
}

function makeGroup({ path, version }: Hierarchy, controller: Controller['name'], place: Place): string {
  const group = join(path, groupPath(place))
  // Creates the whole path first: a group with a child cannot be removed when its last machine leaves.
  mkdirSync(group, { recursive: true })
  const [top, project] = [join(path, place.instance), dirname(group)]
  if (version === 2) for (const parent of [path, top, project]) delegate(parent, controller)
  if (controller === 'cpu') {
    const { file, unit, max } = WEIGHT[version]
    const weight = isUngrouped(version) ? Math.min(max, unit * availableParallelism()) : unit * GROUPS_OUTWEIGHED
    writeFileSync(join(top, file), `${weight}`)
  }
  return group
}

/** True if this process competes for processors individually rather than in a group such as a service's. */
export function isUngrouped(version: Hierarchy['version'] | undefined = processorVersion()): boolean {
  const lines = readFileSync('/proc/self/cgroup', 'utf8').split('\n')
  return lines.some(line => {
    const [, controllers = '', path] = line.split(':')
    return path === '/' && (version === 2 ? controllers === '' : controllers.split(',').includes('cpu'))
  })
}

/** Version of the hierarchy with the cpu controller. */
const processorVersion = () => hierarchies().find(({ controllers }) => controllers.includes('cpu'))?.version

/** Enables a controller for a group's children. */
function delegate(group: string, controller: string): void {
  const file = join(group, 'cgroup.subtree_control')
  if (!words(file).includes(controller)) writeFileSync(file, `+${controller}`)
}

/** Empty if the file is not there. */
const words = (file: string): string[] =>
  existsSync(file) ? readFileSync(file, 'utf8').split(/\s+/).filter(Boolean) : []

/** Tries to remove a group. @returns false while it is not empty */
async function tryRemove(group: string): Promise<boolean> {
  try {
    // Asynchronous, because removal waits for all processors of the host.
    await rmdir(group)
    return true
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // EROFS: where groups cannot be created, as in some containers, none exists.
    if (code === 'ENOENT' || code === 'EROFS') return true
    if (code === 'EBUSY' || code === 'ENOTEMPTY') return false
    throw error
  }
}
