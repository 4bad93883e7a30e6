import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { seccompLauncher } from '../../../../amphora-agent/seccomp/launcher.js'
import { MACHINE_RULES } from '../../../../amphora-agent/seccomp/rules.js'
import { enforce, isUngrouped, release } from '../../../compute/namespace/cgroup.js'
import { freeBytes, LEAST_FREE_BYTES, missingPackages } from '../../host/checks.js'
import { machineLimits } from '../../wiring/drivers.js'
import type { Instance } from '../../wiring/instance.js'
import { type Finding, fault, note, ok } from './check.js'

const run = promisify(execFile)
const LIMIT = { timeout: 10_000 }

export async function checkPackages(instance: Instance): Promise<Finding[]> {
  const missing = missingPackages(instance)
  if (missing.length === 0) return [ok('packages', 'everything is installed')]
  const remedy = `apt-get install -y --no-install-recommends ${missing.join(' ')}`
  return [fault('packages', `missing: ${missing.join(', ')}`, remedy)]
}

export async function checkDisk({ directory }: Instance): Promise<Finding[]> {
  const free = freeBytes(directory)
  const text = `${Math.round(free / 1024 / 1024)} MiB free below ${directory}`
  return [free >= LEAST_FREE_BYTES ? ok('disk', text) : fault('disk', text, 'free some space; logs are below log/')]
}

const CONTAINER =
  'inside a container it needs --privileged, or CAP_SYS_ADMIN and CAP_NET_ADMIN; a kernel may also lack it'

const USER_NAMESPACES = `sysctl -w user.max_user_namespaces=65536, if that is 0 here; ${CONTAINER}`

/** What amphorae and networks are made of, tried in a namespace that is removed again. */
export async function checkKernel(): Promise<Finding[]> {
  const namespace = `krater-doctor-${process.pid}`
  const attempt = async (
    about: string,
    what: string,
    program: string,
    args: string[],
    remedy = CONTAINER,
  ): Promise<Finding> =>
    run(program, args, LIMIT).then(
      () => ok(about, what),
      error =>
        fault(
          about,
          `${what}: ${
            String(error.stderr || error.message)
              .trim()
              .split('\n')[0]
          }`,
          remedy,
        ),
    )
  const inside = (...words: string[]) => ['-n', namespace, 'link', 'add', 'name', ...words]
  const findings = [await attempt('kernel', 'network namespaces', 'ip', ['netns', 'add', namespace])]
  try {
    findings.push(
      await attempt('kernel', 'bridges', 'ip', inside('br0', 'type', 'bridge')),
      await attempt('kernel', 'veth pairs', 'ip', inside('veth0', 'type', 'veth', 'peer', 'name', 'veth1')),
      await attempt('kernel', 'nftables', 'ip', ['netns', 'exec', namespace, 'nft', 'add', 'table', 'inet', 'krater']),
    )
  } finally {
    await run('ip', ['netns', 'delete', namespace], LIMIT).catch(() => undefined)
  }
  const users = ['--user', '--net', '/bin/true']
  findings.push(await attempt('kernel', 'user namespaces', 'unshare', users, USER_NAMESPACES))
  const confined = ['-e', seccompLauncher(MACHINE_RULES, process.arch), '/bin/true']
  findings.push(await attempt('kernel', 'seccomp filters', '/usr/bin/perl', confined))
  const mounts =
    'mount -t tmpfs krater-doctor /mnt && mkdir /mnt/a /mnt/b && mount --bind /mnt/a /mnt/b && mount -t proc proc /mnt/a'
  const isolated = ['--mount', '--pid', '--fork', '--uts', '--ipc', '--propagation', 'private', 'sh', '-c', mounts]
  findings.push(await attempt('kernel', 'mount and process namespaces, tmpfs, bind mounts', 'unshare', isolated))
  return findings
}

/** As many as a host ever carries. */
const ENOUGH_WATCHERS = 1_024

/** @param most who watch files (inotify) at a time, of the host's root; amphorae count for it */
export function checkWatchers(most: number): Finding[] {
  if (most >= ENOUGH_WATCHERS) return []
  const text = `keepalived of every amphora of a pair needs one of ${most} inotify instances, of which the host's root needs some itself`
  return [{ ...note('limits', text), remedy: 'sysctl -w fs.inotify.max_user_instances=8192' }]
}

/**
 * @param autogroups what kernel.sched_autogroup_enabled holds; null where the kernel has none
 * @param inGroup whether this process is in a control group for processors, in which they do not count
 */
export function checkPriorities(autogroups: string | null, inGroup: boolean): Finding[] {
  if (autogroups?.trim() !== '1' || inGroup) return []
  const text =
    'the kernel shares processors between sessions (autogroups), so the priorities of threads count within one process: a flood at one API costs the others more'
  const remedy = 'sysctl -w kernel.sched_autogroup_enabled=0, or run Krater as a service of systemd'
  return [{ ...note('limits', text), remedy }]
}

const AUTOGROUPS = '/proc/sys/kernel/sched_autogroup_enabled'

const MOUNT_CONTROL_GROUPS =
  'let root write below /sys/fs/cgroup; a container needs --privileged and --cgroupns=host, and nothing but groups in its root'

/** Whether amphorae can be kept to their memory, processors and processes, tried with a group that is removed again. */
export async function checkLimits({ config }: Instance): Promise<Finding[]> {
  if (config.compute.driver === 'noop') return []
  const name = `krater-doctor-${process.pid}`
  const place = { instance: name, project: null, machine: 'amphora' }
  const { inForce, lacking } = enforce(place, machineLimits(config.compute))
  await release(place)
  const watchers = checkWatchers(Number(readFileSync('/proc/sys/fs/inotify/max_user_instances', 'utf8')))
  const { memoryBytes, processors, processes } = inForce
  const limits = [
    memoryBytes && `${memoryBytes / 1024 / 1024} MiB of memory`,
    processors && `${processors} processors`,
    processes && `${processes} processes`,
  ].filter(limit => limit !== undefined)
  return [
    ...(limits.length === 0 ? [] : [ok('limits', `an amphora may use ${limits.join(', ')}`)]),
    ...lacking.map(({ what, why }) => ({
      ...note('limits', `amphorae have no limit of ${what}: ${why}`),
      remedy: MOUNT_CONTROL_GROUPS,
    })),
    ...watchers,
    ...checkPriorities(existsSync(AUTOGROUPS) ? readFileSync(AUTOGROUPS, 'utf8') : null, !isUngrouped()),
  ]
}
