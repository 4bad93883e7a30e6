import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname } from 'node:path'
import type { Boot } from '../protocol/boot.js'
import { HAPROXY_CHROOT, STATE_DIRECTORY } from '../protocol/paths.js'
import { PERL, seccompLauncher } from '../seccomp/launcher.js'
import { HAPROXY_RULES } from '../seccomp/rules.js'
import { HAPROXY_PROGRAM } from './validate.js'

const LAUNCHER = `${STATE_DIRECTORY}/haproxy-seccomp.pl`
const WORKING_DIRECTORY = `${STATE_DIRECTORY}/haproxy`
/** HAProxy reads this before its configuration: the settings that depend on the machine, not on the load balancer. */
const MACHINE_CONFIGURATION = `${STATE_DIRECTORY}/haproxy-machine.cfg`

/**
 * Prepares HAProxy's sandbox: its chroot directory, its seccomp filter, and its share of the amphora's processes.
 * It gets half of them, so that the agent can still start what it needs if HAProxy is compromised. HAProxy counts
 * the processors of the host, so `nbthread` limits it if the amphora may use fewer.
 * @returns the program and its first arguments, which launch HAProxy
 */
export function prepareSandbox({
  processes,
  processors = Number.POSITIVE_INFINITY,
}: NonNullable<Boot['limits']>): string[] {
  prepareChroot()
  const launcher = seccompLauncher(HAPROXY_RULES, process.arch, { processes: processes && Math.ceil(processes / 2) })
  writeFileSync(LAUNCHER, launcher, { mode: 0o600 })
  const threads = Math.min(availableParallelism(), Math.ceil(processors))
  writeFileSync(MACHINE_CONFIGURATION, `global\n    nbthread ${threads}\n`, { mode: 0o600 })
  return [PERL, LAUNCHER, HAPROXY_PROGRAM, '-f', MACHINE_CONFIGURATION]
}

/** Creates the chroot directory; a new worker needs it as well. */
export function prepareChroot(): void {
  mkdirSync(HAPROXY_CHROOT, { recursive: true, mode: 0o555 })
}

/**
 * HAProxy reads client certificates for members once it has left the directory of its configuration, by their names
 * relative to the directory in which it was started. A link there leads to whichever configuration is current.
 * @returns the directory
 */
export function prepareWorkingDirectory(configuration: string): string {
  mkdirSync(WORKING_DIRECTORY, { recursive: true, mode: 0o700 })
  const link = `${WORKING_DIRECTORY}/tls`
  rmSync(link, { force: true })
  symlinkSync(`${dirname(configuration)}/tls`, link)
  return WORKING_DIRECTORY
}
