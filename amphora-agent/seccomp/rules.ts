import { type Comparison, EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT, type Rule, type Rules } from './filter.js'
import { HAPROXY_CALLS, SYSTEM_CALLS, type SystemCall } from './system-calls.js'

// Families from linux/socket.h and protocols from linux/netlink.h.
const AF_UNIX = 1
const AF_INET = 2
const AF_INET6 = 10
const AF_NETLINK = 16
const AF_PACKET = 17
const NETLINK_ROUTE = 0
const NETLINK_SOCK_DIAG = 4
const NETLINK_NETFILTER = 12

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

function allowAll(calls: Readonly<Partial<Record<SystemCall, unknown>>>): Rules {
  return Object.fromEntries(Object.keys(calls).map(call => [call, 'allow']))
}
