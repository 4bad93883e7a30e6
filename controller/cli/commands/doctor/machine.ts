import { execFile } from 'node:child_process'
import { statfsSync } from 'node:fs'
import { promisify } from 'node:util'
import { seccompLauncher } from '../../../../amphora-agent/seccomp/launcher.js'
import { MACHINE_RULES } from '../../../../amphora-agent/seccomp/rules.js'
import { type Finding, fault, ok } from '../../../checks/finding.js'
import { freeBytes, MIN_FREE_BYTES, missingPackages } from '../../host/checks.js'
import type { Instance } from '../../wiring/instance.js'

const run = promisify(execFile)
/** For PostgreSQL's tables and the files of amphorae. */
const MIN_FREE_FILES = 2_000
const LIMIT = { timeout: 10_000 }

export async function checkPackages(instance: Instance): Promise<Finding[]> {
  const missing = missingPackages(instance)
  if (missing.length === 0) return [ok('packages', 'everything is installed')]
  const remedy = `apt-get install -y --no-install-recommends ${missing.join(' ')}`
  return [fault('packages', `missing: ${missing.join(', ')}`, remedy)]
}

export async function checkDisk({ directory }: Instance): Promise<Finding[]> {
  const free = freeBytes(directory)
  const text = `${Math.round(free / 1024 / 1024)} MiB free in ${directory}`
  const { files, ffree } = statfsSync(directory)
  if (files > 0 && ffree < MIN_FREE_FILES) {
    return [
      fault(
        'disk',
        `only ${ffree} files can be created in ${directory}`,
        `du --inodes -x ${directory} | sort -n | tail`,
      ),
    ]
  }
  if (free >= MIN_FREE_BYTES) return [ok('disk', text)]
  const remedy = `free ${MIN_FREE_BYTES / 1024 / 1024} MiB; du -xm ${directory} | sort -n | tail shows what takes the space`
  return [fault('disk', text, remedy)]
}

const CONTAINER =
  'start a container with --privileged, or with --cap-add SYS_ADMIN --cap-add NET_ADMIN; elsewhere: modprobe -a bridge veth nf_tables'

const USER_NAMESPACES = `if user.max_user_namespaces is 0, run sysctl -w user.max_user_namespaces=65536; ${CONTAINER}`

/** Tries the kernel features that amphorae and networks need, in a temporary namespace. */
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
