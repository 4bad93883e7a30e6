import { mkdirSync, writeFileSync } from 'node:fs'
import { HAPROXY_CHROOT, STATE_DIRECTORY } from '../protocol/paths.js'
import { seccompLauncher } from '../seccomp/launcher.js'
import { HAPROXY_RULES } from '../seccomp/rules.js'

export const PERL = '/usr/bin/perl'

const LAUNCHER = `${STATE_DIRECTORY}/haproxy-seccomp.pl`

/**
 * Makes what HAProxy is locked up with: the directory that becomes its root, and its seccomp filter.
 * @returns the file of the Perl program through which HAProxy is started
 */
export function prepareWalls(): string {
  prepareChroot()
  writeFileSync(LAUNCHER, seccompLauncher(HAPROXY_RULES, process.arch), { mode: 0o600 })
  return LAUNCHER
}

/** A new worker needs it as well. */
export function prepareChroot(): void {
  mkdirSync(HAPROXY_CHROOT, { recursive: true, mode: 0o555 })
}
