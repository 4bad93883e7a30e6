/**
 * Tracked connections, in nft's words. The kernel searches the list of a share's connections for each new one, so a
 * share is divided among many short lists.
 */
const LISTS = 256
const CONNECTIONS_PER_LIST = 128

/** The end of a dynamic set's key, after its first part. */
export const SHARE_KEY = 'meta mark'

/**
 * Rules that drop a new connection if there are 32,768 with the same key already. They use up the packet's mark. Pure.
 * @param set a dynamic set, with the key's type and SHARE_KEY for keys
 * @param key an expression that says whose share it is
 */
export const shareRules = (set: string, key: string): string[] => [
  ...['ip', 'ip6'].map(
    ip =>
      `ct state new meta protocol ${ip} meta mark set jhash ${ip} saddr . ${ip} daddr . th sport . th dport mod ${LISTS}`,
  ),
  `ct state new add @${set} { ${key} . ${SHARE_KEY} ct count over ${CONNECTIONS_PER_LIST} } drop`,
]

/** Settings of a namespace that tracks connections. Those that ended or never began are forgotten soon. */
export const TRACKING_SYSCTLS: readonly string[] = [
  'net.netfilter.nf_conntrack_tcp_timeout_syn_sent=10',
  'net.netfilter.nf_conntrack_tcp_timeout_syn_recv=10',
  'net.netfilter.nf_conntrack_tcp_timeout_time_wait=20',
  'net.netfilter.nf_conntrack_tcp_timeout_established=86400',
]
