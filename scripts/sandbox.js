import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, readFileSync, symlinkSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createControlGroups } from './control-groups.js'
import { Failure, say } from './progress.js'

const NAMESPACES = ['--pid', '--mount', '--net', '--ipc', '--cgroup', '--fork', '--kill-child', '--mount-proc']

const SETUP = `
mount -t sysfs sysfs /sys
mkdir -p /run/netns
mount -t tmpfs -o mode=755 tmpfs /run/netns
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ip link set lo up
`

/**
 * Process 1 of the sandbox, which reaps orphans until the program exits. It prints nothing about how the
 * program exited.
 */
const init = mounts => `${SETUP}${mounts}
exec 3>&2 2>/dev/null
"$@" 2>&3 3>&-
exit
`

/**
 * Runs a program as root in its own namespaces and control groups: processes, network and named network
 * namespaces, mounts, shared memory. The kernel ends all of this, with everything that the program started,
 * when the program exits, when `signal` aborts, and when this process dies, even by SIGKILL. A Ctrl-C in the
 * terminal reaches only this process. The sandbox shares the machine's files.
 * @param words the program and its arguments
 * @param options.signal ends the sandbox at once
 * @param options.env added to this process's environment, without its settings of a Krater or of a cloud
 * @param options.onStart called with the child, whose streams are the program's
 * @returns {Promise<number>} the exit status (128 + n for a signal), once nothing runs any more and all output is read
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

/**
 * Keeps variables that are for the tests themselves. Removes the machine's extra CAs: each process of Node.js 20 reads
 * them all when it starts, which takes longer than the rest of the start.
 */
const withoutSettings = environment =>
  Object.fromEntries(
    Object.entries(environment).filter(
      ([name]) => name !== 'NODE_EXTRA_CA_CERTS' && !/^(OS|KRATER(?!_(TEST|UPDATE)))_/.test(name),
    ),
  )

/**
 * Creates an empty sandbox: the exit status of a sandbox with a program does not show which of the two failed.
 * @throws Failure that says what is not permitted
 */
function trySandbox() {
  const words = [...NAMESPACES, 'bash', '-ec', SETUP]
  const { status, error, stderr } = spawnSync('unshare', words, { encoding: 'utf8', timeout: 20_000 })
  if (status === 0) return
  const why = error?.message ?? stderr.trim()
  throw new Failure(
    `Cannot create the sandbox: ${why}\nIt needs namespaces and mounts; in a container, this takes --privileged.`,
  )
}

/**
 * Creates a directory for everything that a run writes. Programs in it find the packages, and the postgres account can
 * enter it. Its name is short, because the path of a socket has at most 107 bytes.
 */
export function createRunDirectory() {
  const directory = mkdtempSync(join(tmpdir(), 'krt-'))
  chmodSync(directory, 0o755)
  symlinkSync(join(dirname(dirname(fileURLToPath(import.meta.url))), 'node_modules'), join(directory, 'node_modules'))
  return directory
}

/**
 * Makes SIGINT, SIGTERM and SIGHUP abort the returned signal instead of ending this process, and sets the exit
 * status to 128 + n.
 * @param what noun phrase for what is removed then
 * @returns {AbortSignal}
 */
export function interruption(what) {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(name, () => controller.abort(name))
  // A closed terminal must not prevent the clean-up.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
  controller.signal.addEventListener('abort', () => {
    say(`Interrupted; removing ${what} ...`)
    process.exitCode = 128 + constants.signals[controller.signal.reason]
  })
  return controller.signal
}

/** The oldest child: for unshare, process 1 of the sandbox; for that process, the program. */
function firstChildOf(pid) {
  const [child] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean)
  return child === undefined ? undefined : Number(child)
}

/** Runs `work` and ignores its failure if the process in question has already exited. */
function unlessEnded(work) {
  try {
    work()
  } catch (error) {
    if (!['ENOENT', 'ESRCH'].includes(error.code)) throw error
  }
}
