import { existsSync, readFileSync } from 'node:fs'
import { type Finding, note, ok } from '../../checks/finding.js'
import { enforce, isUngrouped, type Limits, release } from './cgroup.js'

/** Enough for the most amphorae of a host. */
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

/** Checks that limits of memory, processors and processes work, with a control group that is removed again. */
export async function checkLimits(limits: Limits): Promise<Finding[]> {
  const name = `krater-doctor-${process.pid}`
  const place = { instance: name, project: null, machine: 'amphora' }
  const { inForce, lacking } = enforce(place, limits)
  await release(place)
  const watchers = checkWatchers(Number(readFileSync('/proc/sys/fs/inotify/max_user_instances', 'utf8')))
  const { memoryBytes, processors, processes } = inForce
  const enforced = [
    memoryBytes && `${memoryBytes / 1024 / 1024} MiB of memory`,
    processors && `${processors} processors`,
    processes && `${processes} processes`,
  ].filter(limit => limit !== undefined)
  return [
    ...(enforced.length === 0 ? [] : [ok('limits', `an amphora may use ${enforced.join(', ')}`)]),
    ...lacking.map(({ what, why }) => ({
      ...note('limits', `amphorae have no limit of ${what}: ${why}`),
      remedy: MOUNT_CONTROL_GROUPS,
    })),
    ...watchers,
    ...checkPriorities(existsSync(AUTOGROUPS) ? readFileSync(AUTOGROUPS, 'utf8') : null, !isUngrouped()),
  ]
}
