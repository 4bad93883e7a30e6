import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { rmdir, writeFile } from 'node:fs/promises'
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

/** What a group weighs among its neighbours: `unit` is as much as one process, and what a new group has. */
const WEIGHT = {
  1: { file: 'cpu.shares', unit: 1024, most: 262_144 },
  2: { file: 'cpu.weight', unit: 100, most: 10_000 },
} as const

/**
 * All machines together weigh as much as this many groups beside theirs (services, sessions); where processes have no groups, as much as a busy one on each
 * processor. They carry the traffic. And they work in short bursts, to which the kernel gives less than their weight: beside a busy API, machines that
 * weighed one group got a twentieth of two processors instead of half.
 */
const GROUPS_OUTWEIGHED = 4

/** Kernels without swap accounting do not have these. */
const OPTIONAL = ['memory.memsw.limit_in_bytes', 'memory.swap.max']

/** Whose group a machine's is: `instance/project/machine` in each hierarchy. Projects weigh the same, and so do the machines of each. */
export type Place = {
  instance: string
  /** Null for a machine that waits for a project. */
  project: string | null
  machine: string
}

const WAITING = 'waiting'
const pathOf = ({ instance, project, machine }: Place): string =>
  join(instance, project === null ? WAITING : `project-${encodeURIComponent(project)}`, machine)

/**
 * Makes the control groups of a machine and sets its limits. What the host does not offer or permit is left out, and said. A group of that
 * machine must not exist.
 */
export function enforce(place: Place, limits: Limits, known = hierarchies()): Enforced {
  const enforced: Enforced = { groups: [], inForce: {}, lacking: [] }
  for (const controller of CONTROLLERS) {
    const { name, what, limit } = controller
    const hierarchy = known.find(({ controllers }) => controllers.includes(name))
    if (hierarchy === undefined) {
      enforced.lacking.push({ what, why: `the controller ${name} is mounted nowhere` })
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
 * Moves a machine that waited to its project, with its limits: from now on it uses of the project's share of the processors. Where these have a
 * hierarchy of their own, the other limits stay where they are: memory that is in use would not move. May be repeated at any time, also after it
 * was cut off.
 * @throws Error when something in the machine will not move
 */
export async function assign(place: Place): Promise<void> {
  for (const hierarchy of hierarchies().filter(({ controllers }) => controllers.includes('cpu'))) {
    const desired = join(hierarchy.path, pathOf(place))
    for (const group of groupsOf(hierarchy, place).filter(group => group !== desired)) {
      for (const controller of CONTROLLERS) {
        for (const [file] of controller.settings(0)[hierarchy.version]) {
          if (!existsSync(join(group, file))) continue
          makeGroup(hierarchy, controller.name, place)
          writeFileSync(join(desired, file), readFileSync(join(group, file)))
        }
      }
      await untilGone(group, () => moveProcesses(group, desired))
      await isGone(dirname(group))
    }
  }
}

/** Removes the control groups of a machine whose processes have ended, wherever they are. @throws Error when one will not go */
export async function release(place: Pick<Place, 'instance' | 'machine'>): Promise<void> {
  for (const hierarchy of hierarchies()) {
    for (const group of groupsOf(hierarchy, place)) await untilGone(group)
    const top = join(hierarchy.path, place.instance)
    for (const parent of [...groupsIn(top), top]) await isGone(parent)
  }
}

/** The groups of a machine in a hierarchy; right below that of the instance when an earlier version made it. */
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

/** @param empty tried before each attempt to remove the group */
async function untilGone(group: string, empty: () => Promise<void> = async () => undefined): Promise<void> {
  for (const since = performance.now(); ; await wait(5)) {
    await empty()
    if (await isGone(group)) return
    if (performance.now() - since > REMOVE_LIMIT_MS) throw new Error(`The control group ${group} cannot be removed.`)
  }
}

/** What a process starts meanwhile is where the process was; so this is to be repeated until nothing is left. */
async function moveProcesses(from: string, to: string): Promise<void> {
  // Each waits for all processors of the host; together they wait once.
  const moves = words(join(from, 'cgroup.procs')).map(pid => writeFile(join(to, 'cgroup.procs'), pid))
  for (const move of await Promise.allSettled(moves)) {
    if (move.status === 'rejected' && (move.reason as NodeJS.ErrnoException).code !== 'ESRCH') throw move.reason
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
function limitGroup(hierarchy: Hierarchy, controller: Controller, limit: number, place: Place): string {
  const group = makeGroup(hierarchy, controller.name, place)
  for (const [file, value] of controller.settings(limit)[hierarchy.version]) {
    if (!OPTIONAL.includes(file) || existsSync(join(group, file))) writeFileSync(join(group, file), value)
  }
  return group
}

function makeGroup({ path, version }: Hierarchy, controller: Controller['name'], place: Place): string {
  const group = join(path, pathOf(place))
  // All of them first: one that has another in it is not removed with the last machine that was there.
  mkdirSync(group, { recursive: true })
  const [top, project] = [join(path, place.instance), dirname(group)]
  if (version === 2) for (const parent of [path, top, project]) delegate(parent, controller)
  if (controller === 'cpu') {
    const { file, unit, most } = WEIGHT[version]
    const weight = isUngrouped(version) ? Math.min(most, unit * availableParallelism()) : unit * GROUPS_OUTWEIGHED
    writeFileSync(join(top, file), `${weight}`)
  }
  return group
}

/** Whether this process shares the processors with others one by one, and not as a member of a group such as a service. */
export function isUngrouped(version: Hierarchy['version'] | undefined = processorVersion()): boolean {
  const lines = readFileSync('/proc/self/cgroup', 'utf8').split('\n')
  return lines.some(line => {
    const [, controllers = '', path] = line.split(':')
    return path === '/' && (version === 2 ? controllers === '' : controllers.split(',').includes('cpu'))
  })
}

/** Of the hierarchy that has the processors. */
const processorVersion = () => hierarchies().find(({ controllers }) => controllers.includes('cpu'))?.version

/** Lets the groups below one use a controller. */
function delegate(group: string, controller: string): void {
  const file = join(group, 'cgroup.subtree_control')
  if (!words(file).includes(controller)) writeFileSync(file, `+${controller}`)
}

/** None when another mount has covered the file. */
const words = (file: string): string[] =>
  existsSync(file) ? readFileSync(file, 'utf8').split(/\s+/).filter(Boolean) : []

/** Tries to remove a group. @returns false while something is in it */
async function isGone(group: string): Promise<boolean> {
  try {
    // The kernel makes whoever removes one wait for all processors of the host.
    await rmdir(group)
    return true
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // Where nothing can be made, as in a container, nothing of ours is left.
    if (code === 'ENOENT' || code === 'EROFS') return true
    if (code === 'EBUSY' || code === 'ENOTEMPTY') return false
    throw error
  }
}
