import { type Comparison, EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT, type Rule, type Rules } from './filter.js'
import { HAPROXY_CALLS, SYSTEM_CALLS, type SystemCall } from './system-calls.js'

// Families from linux/socket.h and protocols from linux/netlink.h.
const UNIX = 1
const INET = 2
const INET6 = 10
const NETLINK = 16
const PACKET = 17
const ROUTE = 0
const SOCKET_DIAGNOSIS = 4
const NETFILTER = 12

/** All CLONE_NEW... flags of linux/sched.h that clone (not clone3) supports. */
const NAMESPACES = 0x7e020000
/** TIOCSTI and TIOCLINUX inject input into a terminal. */
const TYPING = [0x5412, 0x541c]

const family = (value: number, ...more: Comparison[]): Comparison[] => [{ argument: 0, equals: value }, ...more]

const WITHOUT_NAMESPACES: Rule = { only: [[{ argument: 0, mask: NAMESPACES, equals: 0 }]], errno: EPERM }
/** For clone3, whose flags are in memory that a filter cannot read; on ENOSYS, libraries use clone. */
const NOT_THERE: Rule = { only: [], errno: ENOSYS }
const UNIX_PAIRS: Rule = { only: [family(UNIX)], errno: EAFNOSUPPORT }
const NO_TYPING: Rule = { unless: TYPING.map(request => [{ argument: 1, equals: request }]), errno: EPERM }

/**
 * What HAProxy, keepalived, sshd, the agent and an operator's shell need together, root included. Sockets: IP,
 * unix, raw frames (keepalived announces VIPs with them, tcpdump reads them), and the netlink protocols of ip, nft
 * and ss.
 */
export const MACHINE_RULES: Rules = {
  ...allowAll(SYSTEM_CALLS),
  clone: WITHOUT_NAMESPACES,
  clone3: NOT_THERE,
  socket: {
    only: [
      ...[UNIX, INET, INET6, PACKET].map(value => family(value)),
      ...[ROUTE, SOCKET_DIAGNOSIS, NETFILTER].map(protocol => family(NETLINK, { argument: 2, equals: protocol })),
    ],
    errno: EPROTONOSUPPORT,
  },
  socketpair: UNIX_PAIRS,
  ioctl: NO_TYPING,
}

/** HAProxy's master and workers: IP and unix sockets only. */
export const HAPROXY_RULES: Rules = {
  ...allowAll(HAPROXY_CALLS),
  clone: WITHOUT_NAMESPACES,
  clone3: NOT_THERE,
  socket: { only: [UNIX, INET, INET6].map(value => family(value)), errno: EAFNOSUPPORT },
  socketpair: UNIX_PAIRS,
  ioctl: NO_TYPING,
}

function allowAll(calls: Readonly<Partial<Record<SystemCall, unknown>>>): Rules {
  return Object.fromEntries(Object.keys(calls).map(call => [call, 'allow']))
}
