import type { FlowTuple } from '../datagrams/conntrack.js'
import { canonical, familyOf, networkOf } from '../network/address.js'
import { FORWARDED_MARK, handoverReplyMark, TUNNEL_MARK as MARK } from '../network/marks.js'
import type { IpCommand } from '../network/plan-interfaces.js'
import type { Handover } from '../protocol/handover.js'
import { FLOWS_PORT } from '../protocol/paths.js'

export const TUNNEL = 'handover0'
export const HANDOVER_TABLE = 'table inet krater_handover'

/** Not 4789, the port of RFC 7348: a tenant's own VXLAN may use that. */
const TUNNEL_PORT = 4790
/** The leaving amphora serves its stick tables to the other one here, at its own address. */
export const TABLES_PORT = 1026
const TUNNEL_ID = 1
const MAC = { leaving: '02:00:00:00:00:01', 'taking-over': '02:00:00:00:00:02' } as const
/**
 * The other end of the tunnel. Nothing answers ARP or NDP for these addresses; the neighbour entries are permanent.
 */
const NEXT_HOP = { 4: '169.254.0.1', 6: 'fe80::1' } as const
const TUNNEL_TABLE = 350
export const TUNNEL_PRIORITY = 40
/** Ahead of the VIPs' rules, which are removed when the VIP moves. */
export const REPLY_PRIORITY = 90
const FIRST_REPLY_TABLE = 300
/** More connections than a handover has; if the set were full, new connections would go to the wrong amphora. */
const MAX_CONNECTIONS = 1_048_576
/** Flows of UDP and SCTP that stay with the amphora where they began, at most. */
export const MOST_FLOWS = 65_536
/** Numbers, not names: the machine may lack /etc/protocols. */
const PROTOCOL = { udp: 17, sctp: 132 } as const
const FLOWS_PER_COMMAND = 500

export type HandoverPlan = {
  /** Lines for `ip -batch`. */
  commands: IpCommand[]
  /** Rules for nftables, in one transaction. */
  rules: string
}

export type Circumstances = {
  /** Whether the leaving amphora accepts no more connections, and forwards new ones to the other. */
  isDraining: boolean
  /** Whether there are UDP or SCTP listeners. */
  hasFlows: boolean
}

/** Undoes `planHandover`. Any command may fail if its object does not exist. */
export function planHandoverEnd({ interface: device, vips }: Handover): HandoverPlan {
  const commands = [
    ...([4, 6] as const).map(family => line(family, `rule del ${tunnelRule(device)}`)),
    ...vips.flatMap((vip, index) => {
      const family = familyOf(vip.address)
      return [
        line(family, `rule del from ${vip.address} lookup ${FIRST_REPLY_TABLE + index} priority ${REPLY_PRIORITY}`),
        line(family, `rule del ${markedReply(index)}`),
        line(family, `route flush table ${FIRST_REPLY_TABLE + index}`),
        line(family, `addr del ${vip.address}/${family === 4 ? 32 : 128} dev lo`),
      ]
    }),
    line(4, `link del dev ${TUNNEL}`),
  ]
  return { commands, rules: `${HANDOVER_TABLE}\ndelete ${HANDOVER_TABLE}\n` }
}

/**
 * Plans one amphora's part. The leaving amphora keeps the VIPs as local addresses, and the routes of its replies,
 * after it loses them on the network. The one that takes over forwards packets of connections that it did not see
 * begin. Pure.
 */
export function planHandover(handover: Handover, circumstances: Circumstances): HandoverPlan {
  const { role, own, peer, interface: device, vips } = handover
  const otherMac = MAC[role === 'leaving' ? 'taking-over' : 'leaving']
  const tunnel = `type vxlan id ${TUNNEL_ID} local ${own} remote ${peer} dstport ${TUNNEL_PORT}`
  const families = [...new Set(vips.map(vip => familyOf(vip.address)))]
  const commands = [
    line(4, `link add ${TUNNEL} address ${MAC[role]} ${tunnel}`),
    // The MTU of the network: packets that do not fit with the tunnel's header are fragmented.
    line(4, `link set dev ${TUNNEL} mtu 1500 up`),
    ...families.flatMap(family => [
      line(family, `neigh replace ${NEXT_HOP[family]} lladdr ${otherMac} dev ${TUNNEL} nud permanent`),
      line(family, `route replace default via ${NEXT_HOP[family]} dev ${TUNNEL} onlink table ${TUNNEL_TABLE}`),
      line(family, `rule add ${tunnelRule(device)}`),
    ]),
    ...(role === 'leaving' ? vips.flatMap((vip, index) => localVip(vip, index, device)) : []),
  ]
  const rules = role === 'leaving' ? leavingRules(handover, circumstances) : takingOverRules(handover, circumstances)
  return {
    commands,
    rules: `${HANDOVER_TABLE}\ndelete ${HANDOVER_TABLE}\n${HANDOVER_TABLE} {\n${rules}${tunnelGuard(handover)}}\n`,
  }
}

/** Matches the incoming interface, so that the tunnel's own packets, which inherit the mark, do not loop. */
const tunnelRule = (device: string) => `fwmark ${MARK} iif ${device} lookup ${TUNNEL_TABLE} priority ${TUNNEL_PRIORITY}`

/** Replies of members have the VIP as their source only after they are routed. */
const markedReply = (index: number) =>
  `fwmark ${handoverReplyMark(index)} lookup ${FIRST_REPLY_TABLE + index} priority ${REPLY_PRIORITY}`

/** On lo, the address does not answer ARP or NDP, and replies still leave through the VIP's own subnet and gateway. */
function localVip(vip: Handover['vips'][number], index: number, device: string): IpCommand[] {
  const family = familyOf(vip.address)
  const table = FIRST_REPLY_TABLE + index
  const [prefix, flags] = family === 4 ? [32, ''] : [128, ' preferred_lft 0 nodad']
  return [
    line(family, `addr replace ${vip.address}/${prefix} dev lo${flags}`),
    line(family, `route replace ${networkOf(vip.subnet)} dev ${device} src ${vip.address} table ${table}`),
    ...(vip.gateway === null
      ? []
      : [line(family, `route replace default via ${vip.gateway} dev ${device} onlink table ${table}`)]),
    line(family, `rule add from ${vip.address} lookup ${table} priority ${REPLY_PRIORITY}`),
    line(family, `rule add ${markedReply(index)}`),
  ]
}

const IS_SYN = 'tcp flags & (fin | syn | rst | ack) == syn'

function leavingRules({ interface: device, vips }: Handover, { isDraining, hasFlows }: Circumstances): string {
  const replies = vips.map(
    ({ address }, index) =>
      `    ct direction reply ct original ${nftFamily(address)} daddr ${address} meta mark set ${handoverReplyMark(index)}\n`,
  )
  const marking = hasFlows ? chain('prerouting', replies.join(''), 'replies', -140) : ''
  if (!isDraining) return marking
  const lines = vips.map(
    ({ address }) => `    iifname "${device}" ${nftFamily(address)} daddr ${address} ${IS_SYN} meta mark set ${MARK}\n`,
  )
  return `${marking}${chain('prerouting', lines.join(''))}`
}

function takingOverRules({ interface: device, vips }: Handover, { hasFlows }: Circumstances): string {
  const sets = vips.map(
    ({ address }, index) =>
      `  set begun_here_${index} { type ${nftFamily(address) === 'ip' ? 'ipv4' : 'ipv6'}_addr . inet_service . inet_service; ` +
      `size ${MAX_CONNECTIONS}; flags dynamic; }\n`,
  )
  const lines = vips.map(({ address }, index) => {
    const ip = nftFamily(address)
    const connection = `${ip} saddr . tcp sport . tcp dport`
    return (
      `    ${ip} daddr ${address} ${IS_SYN} add @begun_here_${index} { ${connection} } accept\n` +
      `    iifname "${device}" ${ip} daddr ${address} meta l4proto tcp ${connection} != @begun_here_${index} meta mark set ${MARK}\n`
    )
  })
  const moved = hasFlows ? movedRules(device, vips) : ''
  return `${sets.join('')}${chain('prerouting', lines.join(''))}${moved}`
}

/** Packets of flows that began on the other amphora are neither balanced nor remembered here. */
function movedRules(device: string, vips: Handover['vips']): string {
  const sets = vips.map(({ address }, index) => {
    const type = `${nftFamily(address) === 'ip' ? 'ipv4' : 'ipv6'}_addr . inet_service . inet_proto . inet_service`
    return `  set ${movedSet(index)} { type ${type}; size ${MOST_FLOWS}; }\n`
  })
  const lines = vips.map(({ address }, index) => {
    const ip = nftFamily(address)
    const flow = `${ip} saddr . th sport . meta l4proto . th dport`
    return `    iifname "${device}" ${ip} daddr ${address} ${flow} @${movedSet(index)} meta mark set ${MARK} notrack\n`
  })
  return `${sets.join('')}${chain('prerouting', lines.join(''), 'moved', -300)}`
}

const movedSet = (index: number): string => `begun_there_${index}`

/** Rules, in one transaction, that send exactly these flows of UDP and SCTP to the other amphora. Pure. */
export function movedFlows({ vips }: Handover, flows: readonly FlowTuple[]): string {
  return vips
    .flatMap((vip, index) => {
      const set = `${HANDOVER_TABLE.replace('table ', '')} ${movedSet(index)}`
      const elements = flows
        .filter(({ destination }) => destination === canonical(vip.address))
        .map(flow => `${flow.source} . ${flow.sourcePort} . ${PROTOCOL[flow.protocol]} . ${flow.destinationPort}`)
      const pieces = Array.from({ length: Math.ceil(elements.length / FLOWS_PER_COMMAND) }, (_, piece) =>
        elements.slice(piece * FLOWS_PER_COMMAND, (piece + 1) * FLOWS_PER_COMMAND),
      )
      return [`flush set ${set}\n`, ...pieces.map(some => `add element ${set} { ${some.join(', ')} }\n`)]
    })
    .join('')
}

/**
 * Only the other amphora can use the tunnel and reach the stick tables, and only the handover's packets and flows of UDP
 * and SCTP listeners are forwarded.
 */
function tunnelGuard({ own, peer }: Handover): string {
  const ip = nftFamily(own)
  const ports = [`udp dport ${TUNNEL_PORT}`, `tcp dport { ${TABLES_PORT}, ${FLOWS_PORT} }`]
  return (
    chain('input', ports.map(port => `    ${ip} daddr ${own} ${port} ${ip} saddr != ${peer} drop\n`).join('')) +
    chain('forward', `    meta mark != { ${MARK}, ${FORWARDED_MARK} } drop\n`)
  )
}

const chain = (
  hook: 'prerouting' | 'input' | 'forward',
  lines: string,
  name: string = hook,
  priority: string | number = hook === 'prerouting' ? 'mangle' : 'filter',
) => `  chain ${name} {\n    type filter hook ${hook} priority ${priority}; policy accept;\n${lines}  }\n`

const nftFamily = (address: string) => (familyOf(address) === 4 ? 'ip' : 'ip6')

const line = (family: 4 | 6, text: string): IpCommand => ({ family, line: text, essential: true })
