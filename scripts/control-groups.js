import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from 'node:fs'
import { join } from 'node:path'

const CONTROLLERS = ['memory', 'cpu', 'cpuacct', 'pids']

/**
 * A control group for a sandbox in each hierarchy that limits memory, processors or processes: in the sandbox it is the root of that hierarchy, so what
 * is made below it goes with `remove`, however the sandbox ended, and after a `kill -9` with the next sandbox. None where the machine does not
 * permit it.
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
    /** Words before those of a program: it then starts in the groups. */
    join: ['bash', '-c', JOIN, 'join', String(groups.length), ...groups.map(({ group }) => group)],
    /** Shell lines that mount the hierarchies, for a process with a namespace of control groups of its own. */
    mounts: (groups.some(({ type }) => type === 'cgroup') ? PLACE_OF_MANY : '') + groups.map(mountLines).join(''),
    remove: () => {
      for (const { group } of groups) removeTree(group)
    },
  }
}

const PREFIX = 'krater-sandbox-'

/** Its sandbox's process is gone. */
const isAbandoned = name => name.startsWith(PREFIX) && !existsSync(`/proc/${name.slice(PREFIX.length)}`)

const JOIN = `for ((left = $1; left > 0; left--)); do shift; echo 0 >"$1/cgroup.procs"; done; shift; exec "$@"`

/** Where the hierarchies of version 1 are mounted side by side. */
const PLACE_OF_MANY = 'mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup\n'

function hierarchies() {
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n')
  return mounts.flatMap(line => {
    const [, path, type, options = ''] = line.split(' ')
    const controllers = options.split(',').filter(option => CONTROLLERS.includes(option))
    if (type === 'cgroup2') return [{ path, type, options: 'defaults' }]
    return type === 'cgroup' && controllers.length > 0 ? [{ path, type, options: controllers.join(',') }] : []
  })
}

/** Version 2 lets a group with processes in it hand no controller down, so the sandbox's own go into one beside those that tests make. */
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
