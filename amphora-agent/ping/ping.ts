import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { run } from '../process/run.js'
import { HAPROXY_GROUP, HAPROXY_USER } from '../protocol/paths.js'

/** The program could not be run, so nothing is known of the member. */
export class PingFailure extends Error {}

/**
 * Sends one echo request. It goes out under HAProxy's account, so that a member's address reaches no further than HAProxy itself may.
 * @returns whether an answer came in time
 * @throws PingFailure
 */
export async function ping(address: string, timeoutSeconds: number): Promise<boolean> {
  if (isIP(address) === 0) throw new PingFailure(`${address} is not an address`)
  const account = { uid: accountNumber('/etc/passwd', HAPROXY_USER), gid: haproxyGroup() }
  const { status, stderr } = await run('ping', ['-n', '-q', '-c', '1', '-W', String(timeoutSeconds), address], {
    timeoutMs: (timeoutSeconds + 1) * 1000,
    account,
  })
  if (status === 0) return true
  // 1: no answer; 2 with "connect:" or "sendmsg:": the kernel has no way there
  if (status === 1 || /(connect|sendmsg):/.test(stderr)) return false
  throw new PingFailure(stderr.trim().slice(0, 300) || `ping ended with status ${status}`)
}

/**
 * The id of HAProxy's group, whose members may send echo requests; see prepareMachine.
 * @throws PingFailure when there is no such group
 */
export const haproxyGroup = (): number => accountNumber('/etc/group', HAPROXY_GROUP)

/** Third column of passwd or group. @throws PingFailure */
function accountNumber(file: string, name: string): number {
  const line = readFileSync(file, 'utf8')
    .split('\n')
    .find(candidate => candidate.startsWith(`${name}:`))
  const number = Number(line?.split(':')[2])
  if (!Number.isInteger(number)) throw new PingFailure(`${file} has no ${name}`)
  return number
}
