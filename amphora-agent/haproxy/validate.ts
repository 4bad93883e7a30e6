import { dirname } from 'node:path'
import { run } from '../process/run.js'

export const HAPROXY_PROGRAM = '/usr/sbin/haproxy'

const MAX_OUTPUT = 4_000

/**
 * Has HAProxy check the file, where it finds the files that the configuration names; see prepareWorkingDirectory.
 * @returns null if it is valid, else HAProxy's output
 */
export async function haproxyConfigurationError(file: string): Promise<string | null> {
  const options = { timeoutMs: 60_000, cwd: dirname(file) }
  const { status, stdout, stderr } = await run(HAPROXY_PROGRAM, ['-c', '-f', file], options)
  return status === 0 ? null : significantOutput(stdout + stderr) || `haproxy -c exited with status ${status}`
}

export async function haproxyVersion(): Promise<string> {
  return /version (\S+)/.exec((await run(HAPROXY_PROGRAM, ['-v'])).stdout)?.[1] ?? 'unknown'
}

/** The alerts in HAProxy's output, or all of it if there are none; bounded. */
export function significantOutput(text: string): string {
  const lines = text
    .split('\n')
    .map(line => line.trim())
    .filter(Boolean)
  const alerts = lines.filter(line => line.startsWith('[ALERT]'))
  return (alerts.length > 0 ? alerts : lines).join('\n').slice(0, MAX_OUTPUT)
}
