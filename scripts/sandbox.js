import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, readFileSync, symlinkSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createControlGroups } from './control-groups.js'
import { Failure, say } from './progress.js'

const NAMESPACES = ['--pid', '--mount', '--net', '--ipc', '--cgroup', '--fork', '--kill-child', '--mount-proc']

const FURNISH = `
mount -t sysfs sysfs /sys
mkdir -p /run/netns
mount -t tmpfs -o mode=755 tmpfs /run/netns
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ip link set lo up
`

/** Process 1 of the sandbox: it collects the orphans, so it stays until the program has ended. It has no words on how that was. */
const init = mounts => `${FURNISH}${mounts}
exec 3>&2 2>/dev/null
"$@" 2>&3 3>&-
exit
`

/**
 * Runs a program as root in namespaces and control groups of its own: processes, network and named network namespaces, mounts, shared memory. The kernel ends all of
 * that, whatever the program has started, when the program ends, when `signal` aborts, and when this process dies, even by SIGKILL. A Ctrl-C in the
 * terminal reaches this process only. Files are the machine's.
 * @param words the program and its arguments
 * @param options.signal ends it at once
 * @param options.env what its environment has beside ours, of which it does not get the settings of a Krater or of a cloud
 * @param options.onStart is given the child, whose streams are the program's
 * @returns {Promise<number>} the exit status (128 + n for a signal), when nothing of it runs any more and its output has been read
 * @throws Failure when this machine permits no sandbox
 */
export async function runInSandbox(words, { signal, onStart = () => {}, env = {}, ...options }) {
  trySandbox()
  const groups = createControlGroups()
  const program = [...groups.join, 'unshare', ...NAMESPACES, 'bash', '-ec', init(groups.mounts), 'init', ...words]
  const outer = spawn('setpriv', ['--pdeathsig', 'KILL', ...program], {
    ...options,
    env: { ...withoutSettings(process.env), ...env },
    detached: true,
  })
  const closed = once(outer, 'close')
  const end = () =>
    unlessEnded(() => {
      const init = firstChildOf(outer.pid)
      const inside = init && firstChildOf(init)
      process.kill(inside ?? init ?? outer.pid, 'SIGKILL')
    })
  onStart(outer)
  signal.addEventListener('abort', end)
  if (signal.aborted) end()
  const [code] = await closed.finally(() => {
    signal.removeEventListener('abort', end)
    groups.remove()
  })
  return code ?? 137
}

/** What is for the tests themselves stays. */
const withoutSettings = environment =>
  Object.fromEntries(Object.entries(environment).filter(([name]) => !/^(OS|KRATER(?!_(TEST|UPDATE)))_/.test(name)))

/** Makes one for nothing: the exit status of one that runs a program does not tell whose it is. @throws Failure saying what is not permitted */
function trySandbox() {
  const words = [...NAMESPACES, 'bash', '-ec', FURNISH]
  const { status, error, stderr } = spawnSync('unshare', words, { encoding: 'utf8', timeout: 20_000 })
  if (status === 0) return
  const why = error?.message ?? stderr.trim()
  throw new Failure(
    `The sandbox cannot be made: ${why}\nIt needs namespaces and mounts; inside a container that takes --privileged.`,
  )
}

/**
 * A directory for all that a run writes. Programs in it find the packages, and the postgres account may pass through. Its name is short, for paths of
 * sockets end after 107 bytes.
 */
export function createRunDirectory() {
  const directory = mkdtempSync(join(tmpdir(), 'krt-'))
  chmodSync(directory, 0o755)
  symlinkSync(join(dirname(dirname(fileURLToPath(import.meta.url))), 'node_modules'), join(directory, 'node_modules'))
  return directory
}

/**
 * From now on SIGINT, SIGTERM and SIGHUP do not end this process but abort what it gets here, and the exit status tells of them.
 * @param what is removed then, in words
 * @returns {AbortSignal}
 */
export function interruption(what) {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(name, () => controller.abort(name))
  // A terminal that is gone is no reason to leave anything behind.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
  controller.signal.addEventListener('abort', () => {
    say(`Interrupted; removing ${what} ...`)
    process.exitCode = 128 + constants.signals[controller.signal.reason]
  })
  return controller.signal
}

/** The oldest: of unshare process 1 of the sandbox, of that one the program. */
function firstChildOf(pid) {
  const [child] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean)
  return child === undefined ? undefined : Number(child)
}

/** Does what may come too late: when the process that it is about has ended. */
function unlessEnded(work) {
  try {
    work()
  } catch (error) {
    if (!['ENOENT', 'ESRCH'].includes(error.code)) throw error
  }
}
