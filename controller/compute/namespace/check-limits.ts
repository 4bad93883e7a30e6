import { existsSync, readFileSync } from 'node:fs'
import { type Finding, note, ok } from '../../checks/finding.js'
import { enforce, isUngrouped, type Limits, release } from '../host/cgroup.js'

/** Enough for the largest number of amphorae on a host. */
const MIN_INOTIFY_INSTANCES = 1_024

/** @param limit inotify instances for the host's root, against which amphorae count */
export function checkInotifyLimit(limit: number): Finding[] {
  if (limit >= MIN_INOTIFY_INSTANCES) return []
  const text = `each amphora of a pair needs one of the ${limit} inotify instances of the host's root, which needs some itself`
  return [{ ...note('limits', text), remedy: 'sysctl -w fs.inotify.max_user_instances=8192' }]
}

/**
 * @param autogroups value of kernel.sched_autogroup_enabled; null if the kernel has no such setting
 * @param inGroup whether this process is in a cpu control group, where autogroups have no effect
 */
export function checkPriorities(autogroups: string | null, inGroup: boolean): Finding[] {
  if (autogroups?.trim() !== '1' || inGroup) return []
  const text =
    'the kernel shares processors between sessions (autogroups), so thread priorities only apply within one process: a flood of requests to one API slows the others down more'
  const remedy = 'sysctl -w kernel.sched_autogroup_enabled=0, or run Krater as a systemd service'
  return [{ ...note('limits', text), remedy }]
}

const AUTOGROUPS = '/proc/sys/kernel/sched_autogroup_enabled'

const MOUNT_CONTROL_GROUPS =
  'make /sys/fs/cgroup writable for root; a container needs --privileged and --cgroupns=host, and its root cgroup must contain only groups'

/** Checks that limits on memory, processors and processes work, using a temporary control group. */
export async function checkLimits(limits: Limits): Promise<Finding[]> {
  const name = `krater-doctor-${process.pid}`
  const place = { instance: name, project: null, machine: 'amphora' }
  const { inForce, lacking } = enforce(place, limits)
  await release(place)
  const inotify = checkInotifyLimit(Number(readFileSync('/proc/sys/fs/inotify/max_user_instances', 'utf8')))
  const { memoryBytes, processors, processes } = inForce
  const enforced = [
    memoryBytes && `${memoryBytes / 1024 / 1024} MiB of memory`,
    processors && `${processors} processors`,
    processes && `${processes} processes`,
  ].filter(limit => limit !== undefined)
  return [
    ...(enforced.length === 0 ? [] : [ok('limits', `an amphora may use ${enforced.join(', ')}`)]),
    ...lacking.map(({ what, why }) => ({
      ...note('limits', `amphorae have no ${what} limit: ${why}`),
      remedy: MOUNT_CONTROL_GROUPS,
    })),
    ...inotify,
    ...checkPriorities(existsSync(AUTOGROUPS) ? readFileSync(AUTOGROUPS, 'utf8') : null, !isUngrouped()),
  ]
}
