import type { Log } from '../log/log.js'
import { canonical } from '../network/address.js'
import { batch, NetworkFailure, setKernel } from '../network/configure.js'
import { observeNetwork } from '../network/observed.js'
import type { IpCommand } from '../network/plan-interfaces.js'
import { run } from '../process/run.js'
import type { Handover } from '../protocol/handover.js'
import { planHandover, planHandoverEnd, TUNNEL } from './plan-handover.js'

/** Sets up the tunnel between the two amphorae. @throws NetworkFailure */
export async function build(handover: Handover, hasFlows: boolean, log: Log): Promise<void> {
  const { commands, rules } = planHandover(handover, { isDraining: false, hasFlows })
  await loadRules(rules)
  await batch(commands.slice(0, 1), log)
  // Replies leave through the VIP's interface, and an interface without an address fails any reverse path check.
  // Newer kernels use the stricter of the two settings.
  for (const device of ['all', TUNNEL]) setKernel(`ipv4/conf/${device}/rp_filter`, '0', log)
  for (const device of [TUNNEL, handover.interface]) setKernel(`ipv4/conf/${device}/forwarding`, '1', log)
  // For IPv6, the setting of one interface does not suffice; the rules forward only the handover's packets.
  setKernel('ipv6/conf/all/forwarding', '1', log)
  await batch(commands.slice(1), log)
}

/**
 * Removes what `build` sets up; may be repeated.
 * @param hasFlows whether packets are still forwarded to members
 * @throws NetworkFailure
 */
export async function unbuild(handover: Handover, hasFlows: boolean, log: Log): Promise<void> {
  const { commands, rules } = planHandoverEnd(handover)
  await batch(commands.map(unessential), quiet(log))
  if (!hasFlows) {
    setKernel('ipv6/conf/all/forwarding', '0', log)
    setKernel(`ipv4/conf/${handover.interface}/forwarding`, '0', log)
  }
  await loadRules(rules)
}

/** Most of the removals fail because their objects do not exist; their warnings are noise. */
const quiet = (log: Log): Log => ({ ...log, warn: () => {} })
const unessential = (command: IpCommand): IpCommand => ({ ...command, essential: false })

/** Loads rules with nft. @throws NetworkFailure */
export async function loadRules(rules: string): Promise<void> {
  const { status, stderr } = await run('nft', ['-f', '-'], { input: rules })
  if (status !== 0) throw new NetworkFailure(`nft: ${stderr.trim().slice(0, 1_000)}`)
}

/** Whether this amphora's interface has one of the VIPs. */
export async function holdsVip({ interface: device, vips }: Handover): Promise<boolean> {
  const { addresses } = await observeNetwork()
  const own = addresses.filter(address => address.device === device).map(({ address }) => canonical(address))
  return vips.some(vip => own.includes(canonical(vip.address)))
}
