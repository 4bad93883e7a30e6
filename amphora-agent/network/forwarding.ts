import { readFileSync } from 'node:fs'
import type { Log } from '../log/log.js'
import type { Desired } from '../protocol/desired.js'
import { setKernel } from './configure.js'

/** How many flows the kernel remembers at least, where the machine is its own. A flow takes about 300 bytes. */
const FEWEST_FLOWS = 131_072

const FLOWS_SETTING = 'netfilter/nf_conntrack_max'

type Needs = Pick<Desired, 'interfaces' | 'datagrams'>

/**
 * Lets packets through between the tenant's interfaces if there are UDP or SCTP listeners; the packet filter drops all but
 * their flows. The management interface never forwards IPv4; IPv6 knows one setting for all, so the filter decides.
 * @returns whether a setting was wrong
 */
export function settleForwarding(desired: Needs, log: Log): boolean {
  const wrong = forwardingSettings(desired).filter(([key, value]) => readKernel(key) !== value)
  for (const [key, value] of wrong) setKernel(key, value, log)
  if (desired.datagrams && Number(readKernel(FLOWS_SETTING)) < FEWEST_FLOWS) {
    // A machine that shares its kernel may not set it.
    setKernel(FLOWS_SETTING, String(FEWEST_FLOWS), { ...log, warn: () => {} })
  }
  return wrong.length > 0
}

function forwardingSettings({ interfaces, datagrams }: Needs): [string, string][] {
  if (!datagrams) return []
  const associations = datagrams.listeners.filter(({ protocol }) => protocol === 'sctp')
  return [
    ['ipv6/conf/all/forwarding', '1'],
    // Members are often on the client's own network, but clients must go on to use the VIP.
    ['ipv4/conf/all/send_redirects', '0'],
    ...interfaces.flatMap(({ name }): [string, string][] => [
      [`ipv4/conf/${name}/forwarding`, '1'],
      [`ipv4/conf/${name}/send_redirects`, '0'],
    ]),
    // nft cannot say it for each listener, as it can for UDP.
    ...(associations.length === 0
      ? []
      : [
          [
            'netfilter/nf_conntrack_sctp_timeout_established',
            String(Math.max(...associations.map(({ idleSeconds }) => idleSeconds))),
          ] as [string, string],
        ]),
  ]
}

/** Stops forwarding; for a load balancer that has no UDP or SCTP listener any more, and after a handover. */
export function stopForwarding(interfaces: Desired['interfaces'], log: Log): void {
  setKernel('ipv6/conf/all/forwarding', '0', log)
  for (const { name } of interfaces) setKernel(`ipv4/conf/${name}/forwarding`, '0', log)
}

function readKernel(key: string): string | null {
  try {
    return readFileSync(`/proc/sys/net/${key}`, 'utf8').trim()
  } catch {
    return null
  }
}
