import { run } from '../process/run.js'

export const HAPROXY_PROGRAM = '/usr/sbin/haproxy'

const MAX_WORDS = 4_000

/** Asks HAProxy itself. @returns null when the file is good, else what HAProxy says of it */
export async function refusalOf(file: string): Promise<string | null> {
  const { status, stdout, stderr } = await run(HAPROXY_PROGRAM, ['-c', '-f', file], { timeoutMs: 60_000 })
  return status === 0 ? null : significantWords(stdout + stderr) || `haproxy -c ended with status ${status}`
}

export async function haproxyVersion(): Promise<string> {
  return /version (\S+)/.exec((await run(HAPROXY_PROGRAM, ['-v'])).stdout)?.[1] ?? 'unknown'
}

/** The alarms among what HAProxy printed, or all of it when there are none; bounded. */
export function significantWords(text: string): string {
  const lines = text
    .split('\n')
    .map(line => line.trim())
    .filter(Boolean)
  const alerts = lines.filter(line => line.startsWith('[ALERT]'))
  return (alerts.length > 0 ? alerts : lines).join('\n').slice(0, MAX_WORDS)
}
