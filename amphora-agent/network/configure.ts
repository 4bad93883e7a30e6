import { writeFileSync } from 'node:fs'
import type { Log } from '../log/log.js'
import { run } from '../process/run.js'
import type { Desired, Interface } from '../protocol/desired.js'
import { waitFor } from '../time/wait.js'
import { canonical } from './address.js'
import { type Observed, observeLinks, observeNetwork } from './observed.js'
import { type InterfacePlan, type IpCommand, planInterfaces } from './plan-interfaces.js'

/** How long to wait for an interface that is still being plugged when the apply arrives. */
const INTERFACE_WAIT_MS = 5_000

export class NetworkFailure extends Error {}

/** Waits a while for the interfaces. @returns the MAC addresses that no interface has */
export async function missingInterfaces(interfaces: readonly Interface[]): Promise<string[]> {
  if (interfaces.length === 0) return []
  const missing = (links: Observed['links']) => {
    const present = new Set(links.map(({ mac }) => mac))
    return interfaces.map(({ mac }) => mac).filter(mac => !present.has(mac))
  }
  const there = async () => (missing(await observeLinks()).length === 0 ? true : null)
  if (await waitFor(there, { timeoutMs: INTERFACE_WAIT_MS, everyMs: 50 })) return []
  return missing(await observeLinks())
}

/**
 * Plans what the network lacks of the desired state; the plan is empty if it lacks nothing.
 * @param former its interfaces lose their addresses if they are no longer desired
 * @param observed read now if not given
 */
export async function planNetwork(
  desired: Desired | null,
  former: Desired | null,
  observed?: Observed,
): Promise<InterfacePlan> {
  return planInterfaces(
    desired?.interfaces ?? [],
    observed ?? (await observeNetwork()),
    (former?.interfaces ?? []).map(({ name }) => name),
    desired?.keepalived ? 'keepalived' : 'us',
    Boolean(desired?.datagrams),
  )
}

export function isEmpty({ renames, links, additions, removals }: InterfacePlan): boolean {
  return [renames, links, additions, removals].every(commands => commands.length === 0)
}

/**
 * Names interfaces that were just plugged: keepalived refuses to check a configuration whose interfaces do not exist.
 * @returns the plan for the rest
 * @throws NetworkFailure
 */
export async function nameInterfaces(
  plan: InterfacePlan,
  desired: Desired,
  former: Desired | null,
  log: Log,
): Promise<InterfacePlan> {
  if (plan.renames.length === 0) return plan
  for (const { from, to } of plan.renames) {
    // Older kernels rename an interface only while it is down.
    const lines = [`link set dev ${from} down`, `link set dev ${from} name ${to}`]
    const commands = lines.map(line => ({ family: 4 as const, line, essential: true }))
    await batch(commands, log)
  }
  // Plan again: an interface that goes down loses its routes and IPv6 addresses.
  return planNetwork(desired, former)
}

/**
 * Adds missing names, addresses, routes and rules; what is superfluous stays until removeLeftovers.
 * @returns the plan, which lists what is superfluous
 * @throws NetworkFailure with the kernel's message if the kernel refuses an essential command
 */
export async function addMissing(
  plan: InterfacePlan,
  desired: Desired,
  former: Desired | null,
  log: Log,
): Promise<InterfacePlan> {
  const present = await nameInterfaces(plan, desired, former, log)
  for (const { name } of desired.interfaces) prepareInterface(name, log)
  await batch(present.links, log)
  await batch(present.additions, log)
  await announce(present.announce, desired.interfaces, log)
  return present
}

/**
 * Removes our addresses, routes and rules that are no longer desired. Failures are logged: they may be gone
 * already.
 */
export async function removeLeftovers(plan: InterfacePlan, log: Log): Promise<void> {
  await batch(plan.removals, log)
}

/**
 * Machine-wide settings: HAProxy may bind addresses that the other amphora of a pair currently holds, and its group
 * may send echo requests without a privilege.
 */
export function prepareMachine(group: number, log: Log): void {
  setKernel('ipv4/ip_nonlocal_bind', '1', log)
  setKernel('ipv6/ip_nonlocal_bind', '1', log)
  setKernel('ipv4/ping_group_range', `${group} ${group}`, log)
}

/**
 * Announces new addresses to neighbours. The kernel announces all addresses of an interface (arp_notify,
 * ndisc_notify) when its MAC address is set, even to the same value, but not when an address is added.
 */
async function announce(devices: readonly string[], interfaces: readonly Interface[], log: Log): Promise<void> {
  const macs = new Map(interfaces.map(({ name, mac }) => [name, mac]))
  const commands = devices.map(device => ({
    family: 4 as const,
    line: `link set dev ${device} address ${macs.get(device)}`,
    essential: false,
  }))
  await batch(commands, log)
}

/** Announces all interfaces that carry VIPs again. */
export async function announceVips(interfaces: readonly Interface[], log: Log): Promise<void> {
  const carrying = interfaces.filter(({ vips }) => vips.length > 0)
  await announce(
    carrying.map(({ name }) => name),
    carrying,
    log,
  )
}

/** Releases the VIPs at once, for the peer to take over. A VIP that is not present is not an error. */
export async function releaseVips(interfaces: readonly Interface[], log: Log): Promise<void> {
  const { addresses } = await observeNetwork()
  const commands = interfaces.flatMap(({ name, vips }) =>
    addresses
      .filter(({ device, address }) => device === name && vips.some(vip => canonical(vip.address) === address))
      .map(({ family, address, prefix }) => ({
        family,
        line: `addr del ${address}/${prefix} dev ${name}`,
        essential: false,
      })),
  )
  await batch(commands, log)
}

function prepareInterface(name: string, log: Log): void {
  const settings: Record<string, string> = {
    // With several interfaces, each answers ARP for its own addresses only, and uses its own address as the source.
    'ipv4/conf/NAME/arp_ignore': '1',
    'ipv4/conf/NAME/arp_announce': '2',
    'ipv4/conf/NAME/arp_notify': '1',
    'ipv4/conf/NAME/rp_filter': '2',
    'ipv4/conf/NAME/promote_secondaries': '1',
    'ipv6/conf/NAME/ndisc_notify': '1',
    'ipv6/conf/NAME/accept_dad': '0',
    'ipv6/conf/NAME/accept_ra': '0',
    'ipv6/conf/NAME/autoconf': '0',
  }
  for (const [key, value] of Object.entries(settings)) setKernel(key.replace('NAME', name), value, log)
}

/** Sets one kernel network setting (sysctl `net.`); a refusal is logged. */
export function setKernel(key: string, value: string, log: Log): void {
  try {
    writeFileSync(`/proc/sys/net/${key}`, value)
  } catch (error) {
    log.warn(`cannot set net/${key}: ${error instanceof Error ? error.message : String(error)}`)
  }
}

/** Runs the commands. @throws NetworkFailure if an essential command fails; failures of others are logged */
export async function batch(commands: readonly IpCommand[], log: Log): Promise<void> {
  for (const family of [4, 6] as const) {
    const ours = commands.filter(command => command.family === family)
    if (ours.length === 0) continue
    const input = ours.map(({ line }) => `${line}\n`).join('')
    const { status, stderr } = await run('ip', [`-${family}`, '-force', '-batch', '-'], { input })
    if (status === 0) continue
    const failed = [...stderr.matchAll(/^Command failed -:(\d+)$/gm)].map(match => ours[Number(match[1]) - 1])
    const output = stderr.trim().slice(0, 1_000)
    const lines = failed.map(command => command?.line ?? '?').join('; ')
    if (failed.length === 0 || failed.some(command => command?.essential)) {
      throw new NetworkFailure(`${lines}: ${output}`)
    }
    log.warn(`ip failed: ${lines}: ${output}`)
  }
}
