import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { run } from '../process/run.js'
import { HAPROXY_GROUP, HAPROXY_USER } from '../protocol/paths.js'

/** The ping program could not be run, so the member's state is unknown. */
export class PingFailure extends Error {}

/**
 * Sends one echo request. It runs under HAProxy's account, so that it can reach no member address that HAProxy cannot.
 * @returns whether a reply arrived in time
 * @throws PingFailure
 */
export async function ping(address: string, timeoutSeconds: number): Promise<boolean> {
  if (isIP(address) === 0) throw new PingFailure(`${address} is not an IP address`)
  const { status, stderr } = await run('ping', ['-n', '-q', '-c', '1', '-W', String(timeoutSeconds), address], {
    timeoutMs: (timeoutSeconds + 1) * 1000,
    account: haproxyAccount(),
  })
  if (status === 0) return true
  // Status 1: no reply. Status 2 with "connect:" or "sendmsg:": the kernel has no route.
  if (status === 1 || /(connect|sendmsg):/.test(stderr)) return false
  throw new PingFailure(stderr.trim().slice(0, 300) || `ping exited with status ${status}`)
}

/** HAProxy's account, which reaches what tenants may reach. @throws PingFailure if there is no such account */
export const haproxyAccount = (): { uid: number; gid: number } => ({
  uid: accountNumber('/etc/passwd', HAPROXY_USER),
  gid: haproxyGroup(),
})

/**
 * The gid of HAProxy's group, whose members may send echo requests; see prepareMachine.
 * @throws PingFailure if there is no such group
 */
export const haproxyGroup = (): number => accountNumber('/etc/group', HAPROXY_GROUP)

/** Reads the third column of passwd or group. @throws PingFailure */
function accountNumber(file: string, name: string): number {
  const line = readFileSync(file, 'utf8')
    .split('\n')
    .find(candidate => candidate.startsWith(`${name}:`))
  const number = Number(line?.split(':')[2])
  if (!Number.isInteger(number)) throw new PingFailure(`${file} has no ${name}`)
  return number
}
