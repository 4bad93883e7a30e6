import { type Comparison, EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT, type Rule, type Rules } from './filter.js'
import { HAPROXY_CALLS, PROBER_CALLS, SYSTEM_CALLS, type SystemCall } from './system-calls.js'

// Families from linux/socket.h and protocols from linux/netlink.h.
const AF_UNIX = 1
const AF_INET = 2
const AF_INET6 = 10
const AF_NETLINK = 16
const AF_PACKET = 17
const NETLINK_ROUTE = 0
const NETLINK_SOCK_DIAG = 4
const NETLINK_NETFILTER = 12

// Types and protocols from linux/net.h and linux/in.h.
const SOCK_STREAM = 1
const SOCK_DGRAM = 2
/** The bits of a type that are no flags. */
const SOCK_TYPE = 0xf
const IPPROTO_TCP = 6
const IPPROTO_UDP = 17

/** All CLONE_NEW... flags of linux/sched.h that clone (not clone3) supports. */
const CLONE_NAMESPACES = 0x7e020000
/** TIOCSTI and TIOCLINUX inject input into a terminal. */
const TERMINAL_INJECTION = [0x5412, 0x541c]

const family = (value: number, ...more: Comparison[]): Comparison[] => [{ argument: 0, equals: value }, ...more]

const WITHOUT_NAMESPACES: Rule = { only: [[{ argument: 0, mask: CLONE_NAMESPACES, equals: 0 }]], errno: EPERM }
/** For clone3, whose flags are in memory that a filter cannot read; on ENOSYS, libraries use clone. */
const NOT_IMPLEMENTED: Rule = { only: [], errno: ENOSYS }
const UNIX_PAIRS: Rule = { only: [family(AF_UNIX)], errno: EAFNOSUPPORT }
const NO_TERMINAL_INJECTION: Rule = {
  unless: TERMINAL_INJECTION.map(request => [{ argument: 1, equals: request }]),
  errno: EPERM,
}

/**
 * What HAProxy, keepalived, sshd, the agent and an operator's shell need together, root included. Sockets: IP,
 * unix, raw frames (keepalived announces VIPs with them, tcpdump reads them), and the netlink protocols of ip, nft
 * and ss.
 */
export const MACHINE_RULES: Rules = {
  ...allowAll(SYSTEM_CALLS),
  clone: WITHOUT_NAMESPACES,
  clone3: NOT_IMPLEMENTED,
  socket: {
    only: [
      ...[AF_UNIX, AF_INET, AF_INET6, AF_PACKET].map(value => family(value)),
      ...[NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_NETFILTER].map(protocol =>
        family(AF_NETLINK, { argument: 2, equals: protocol }),
      ),
    ],
    errno: EPROTONOSUPPORT,
  },
  socketpair: UNIX_PAIRS,
  ioctl: NO_TERMINAL_INJECTION,
}

/** HAProxy's master and workers: IP and unix sockets only. */
export const HAPROXY_RULES: Rules = {
  ...allowAll(HAPROXY_CALLS),
  clone: WITHOUT_NAMESPACES,
  clone3: NOT_IMPLEMENTED,
  socket: { only: [AF_UNIX, AF_INET, AF_INET6].map(value => family(value)), errno: EAFNOSUPPORT },
  socketpair: UNIX_PAIRS,
  ioctl: NO_TERMINAL_INJECTION,
}

const PROBE_SOCKETS = [AF_INET, AF_INET6].flatMap(value => [
  { domain: value, type: SOCK_STREAM, protocol: IPPROTO_TCP },
  { domain: value, type: SOCK_DGRAM, protocol: IPPROTO_UDP },
])
/** SO_LINGER, IP_RECVERR and IPV6_RECVERR, each after its level. */
const PROBE_OPTIONS = [
  { level: 1, option: 13 },
  { level: 0, option: 11 },
  { level: 41, option: 25 },
]

/**
 * The prober of members, once it has all that needs rights: it opens TCP and UDP sockets, and neither files nor
 * processes. It can make nothing else of the raw sockets that it holds, such as packets with other senders.
 */
export const PROBER_RULES: Rules = {
  ...Object.fromEntries(PROBER_CALLS.map(call => [call, 'allow'])),
  socket: {
    only: PROBE_SOCKETS.map(({ domain, type, protocol }) =>
      family(domain, { argument: 1, mask: SOCK_TYPE, equals: type }, { argument: 2, equals: protocol }),
    ),
    errno: EPERM,
  },
  setsockopt: {
    only: PROBE_OPTIONS.map(({ level, option }) => [
      { argument: 1, equals: level },
      { argument: 2, equals: option },
    ]),
    errno: EPERM,
  },
}

function allowAll(calls: Readonly<Partial<Record<SystemCall, unknown>>>): Rules {
  return Object.fromEntries(Object.keys(calls).map(call => [call, 'allow']))
}
