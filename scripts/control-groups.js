import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from 'node:fs'
import { join } from 'node:path'

const CONTROLLERS = ['memory', 'cpu', 'cpuacct', 'pids']

/**
 * Creates a control group for a sandbox in each hierarchy that limits memory, processors or processes. In the
 * sandbox, the group is the root of that hierarchy, so `remove` also removes every group created below it,
 * however the sandbox ended; after a `kill -9`, the next sandbox removes them. Creates no group where the
 * machine does not permit it.
 */
export function createControlGroups() {
  const groups = hierarchies().flatMap(hierarchy => {
    const path = join(hierarchy.path, `${PREFIX}${process.pid}`)
    try {
      for (const name of readdirSync(hierarchy.path)) if (isAbandoned(name)) removeTree(join(hierarchy.path, name))
      mkdirSync(path)
      return [{ ...hierarchy, group: path }]
    } catch {
      return []
    }
  })
  return {
    /** A command line prefix that starts a program in the groups. */
    join: ['bash', '-c', JOIN, 'join', String(groups.length), ...groups.map(({ group }) => group)],
    /** Shell lines that mount the hierarchies, for a process in its own control group namespace. */
    mounts: (groups.some(({ type }) => type === 'cgroup') ? VERSION_1_MOUNT : '') + groups.map(mountLines).join(''),
    remove: () => {
      for (const { group } of groups) removeTree(group)
    },
  }
}

const PREFIX = 'krater-sandbox-'

/** Whether the process of the group's sandbox no longer exists. */
const isAbandoned = name => name.startsWith(PREFIX) && !existsSync(`/proc/${name.slice(PREFIX.length)}`)

const JOIN = `for ((left = $1; left > 0; left--)); do shift; echo 0 >"$1/cgroup.procs"; done; shift; exec "$@"`

/** Mounts the directory that holds the mounts of the version 1 hierarchies. */
const VERSION_1_MOUNT = 'mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup\n'

function hierarchies() {
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n')
  return mounts.flatMap(line => {
    const [, path, type, options = ''] = line.split(' ')
    const controllers = options.split(',').filter(option => CONTROLLERS.includes(option))
    if (type === 'cgroup2') return [{ path, type, options: 'defaults' }]
    return type === 'cgroup' && controllers.length > 0 ? [{ path, type, options: controllers.join(',') }] : []
  })
}

/**
 * In version 2, a group that contains processes cannot pass controllers to its children, so the sandbox's own
 * processes go into a group beside those that tests create.
 */
const mountLines = ({ path, type, options }) => `
mkdir -p ${path}
mount -t ${type} -o ${options} ${type} ${path}
mkdir ${path}/sandbox
echo 0 >${path}/sandbox/cgroup.procs
`

function removeTree(group) {
  if (!existsSync(group)) return
  for (const entry of readdirSync(group, { withFileTypes: true })) {
    if (entry.isDirectory()) removeTree(join(group, entry.name))
  }
  rmdirSync(group)
}
