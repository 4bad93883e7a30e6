import { existsSync } from 'node:fs'
import * as z from 'zod'
import { forgetFlows } from '../connections/conntrack.js'
import { TRACKING_SYSCTLS } from '../connections/shares.js'
import { IpCommandError, ip, ipBatch, runTool } from '../ip-command.js'
import { bridgeOf } from '../names.js'
import { nft, nftJson, nftTable } from '../nft-command.js'
import { FIRST_GENERATION, TRACKING_TABLE, trackingCommands } from './plan-tracking.js'

const MAX_ATTEMPTS = 5
const SYSCTLS = ['iptables', 'ip6tables', 'arptables'].map(hook => `net.bridge.bridge-nf-call-${hook}=0`)
const MODULE = '/proc/sys/net/bridge'

/**
 * Whether this kernel can pass frames of bridges to its connection tracking. Loads the module if it has to, and then
 * leaves the bridges of the host as they were: the module would filter them too.
 * @throws IpCommandError if there is no such module
 */
async function requireBridgeNetfilter(): Promise<void> {
  if (existsSync(MODULE)) return
  await runTool(['modprobe', 'br_netfilter'], '').catch((error: unknown) => {
    const reason = error instanceof Error ? error.message : String(error)
    throw new IpCommandError(`Security groups need the kernel module br_netfilter, which cannot be loaded: ${reason}`)
  })
  await runTool(['sysctl', '-q', '-w', ...SYSCTLS], '')
}

/**
 * Tracks the connections of networks, each in a zone of its own. Call it before a filter of such a network is in force:
 * what is not tracked counts as refused.
 * @param namespace the fabric's
 */
export async function trackNetworks(namespace: string, networkIds: readonly string[]): Promise<void> {
  await requireBridgeNetfilter()
  // In the fabric, only bridges that are told to are tracked.
  await runTool(['nsenter', `--net=/run/netns/${namespace}`, 'sysctl', '-q', '-w', ...SYSCTLS, ...TRACKING_SYSCTLS], '')
  if ((await nftTable(namespace, TRACKING_TABLE)) === null) await nft(namespace, trackingCommands(FIRST_GENERATION))
  for (let attempt = 1; ; attempt++) {
    const commands = zoneCommands(await zonesOf(namespace), networkIds.map(bridgeOf))
    if (commands === '') break
    const failure = await nft(namespace, commands).catch((error: unknown) => error)
    // Another process may have taken the same number.
    if (failure !== undefined && attempt === MAX_ATTEMPTS) throw failure
  }
}

/** `create` fails where the number is taken. */
function zoneCommands(zones: ReadonlyMap<string, number>, bridges: readonly string[]): string {
  const taken = new Set(zones.values())
  let next = 1
  return bridges
    .filter(bridge => !zones.has(bridge))
    .map(bridge => {
      while (taken.has(next)) next += 1
      taken.add(next)
      return `create element ${TRACKING_TABLE} numbers { ${next} }\ncreate element ${TRACKING_TABLE} zones { "${bridge}" : ${next} }\n`
    })
    .join('')
}

const zonesSchema = z.object({
  nftables: z.array(
    z.object({ map: z.object({ elem: z.array(z.tuple([z.string(), z.number()])).default([]) }).optional() }),
  ),
})

/** The zone of each bridge that has one. */
export async function zonesOf(namespace: string): Promise<Map<string, number>> {
  const answer = await nftJson(namespace, ['map', ...TRACKING_TABLE.split(' '), 'zones'])
  if (answer === null) return new Map()
  return new Map(zonesSchema.parse(answer).nftables.flatMap(({ map }) => map?.elem ?? []))
}

const bridgesSchema = z.array(
  z.object({
    ifname: z.string(),
    linkinfo: z.object({ info_data: z.object({ nf_call_iptables: z.number(), nf_call_ip6tables: z.number() }) }),
  }),
)

/** The bridges of the fabric, and whether their frames go through the tracking. */
export async function bridgesOf(namespace: string): Promise<Map<string, boolean>> {
  const text = await ip(['-n', namespace, '-json', '-details', 'link', 'show', 'type', 'bridge'])
  return new Map(
    bridgesSchema
      .parse(JSON.parse(text || '[]'))
      .map(({ ifname, linkinfo: { info_data } }) => [
        ifname,
        info_data.nf_call_iptables === 1 && info_data.nf_call_ip6tables === 1,
      ]),
  )
}

/** A command for `ip -batch`. */
export const trackingLine = (bridge: string, on: boolean): string =>
  `link set dev ${bridge} type bridge nf_call_iptables ${on ? 1 : 0} nf_call_ip6tables ${on ? 1 : 0}`

/**
 * Switches the tracking of bridges on or off, as their networks have filters or not. Gives up the zones of bridges that
 * are gone, and forgets their connections: the number may become another network's.
 */
export async function settleBridges(namespace: string, networkIds: readonly string[]): Promise<void> {
  const desired = new Set(networkIds.map(bridgeOf))
  const [bridges, zones] = [await bridgesOf(namespace), await zonesOf(namespace)]
  const lines = [...bridges].flatMap(([name, on]) => (desired.has(name) === on ? [] : [trackingLine(name, !on)]))
  const failure = lines.length === 0 ? null : await ipBatch(namespace, lines)
  if (failure !== null) throw failure
  for (const [name, zone] of zones) {
    if (desired.has(name) || bridges.has(name)) continue
    await forgetFlows(namespace, ['-w', `${zone}`])
    await nft(
      namespace,
      `delete element ${TRACKING_TABLE} zones { "${name}" : ${zone} }\ndelete element ${TRACKING_TABLE} numbers { ${zone} }\n`,
    )
  }
}
