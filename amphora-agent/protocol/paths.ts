/**
 * Paths inside an amphora. Rendered configurations use them, so they are part of the contract. All but KEPT_STATE_FILE
 * and AGENTS_DIRECTORY are on a memory file system.
 */
export const STATE_DIRECTORY = '/run/krater'

/** The state in effect, without any key, on the machine's disk if it has one: for the time after a reboot. */
export const KEPT_STATE_FILE = '/var/lib/krater/desired.json'

/** Written by the creator of the machine, mode 0600; see boot.ts. */
export const BOOT_FILE = '/run/krater/boot.json'

/** Agents of upgrades, and links that say which one runs; see images/amphora/agent.sh. On the disk if there is one. */
export const AGENTS_DIRECTORY = '/opt/krater/agents'

/** Written when the agent of an upgrade did not answer: its hash in the first line, and then what it printed. */
export const UPGRADE_FAILED_FILE = '/run/krater/upgrade.failed'
/**
 * On an enrolled host, what it is to become: host.sh, which runs the machine, wipes it and then makes this its boot.json.
 */
export const NEXT_BOOT_FILE = '/etc/krater/boot.next.json'

/** On an enrolled host, where its forwarder leads; see forwarding.ts. */
export const FORWARDING_FILE = '/etc/krater/controllers'

/** On an enrolled host, what host.sh could not remove of the former amphora; absent if nothing was left. */
export const LEFT_BEHIND_FILE = '/run/krater/left-behind'

/** Touched by the agent while it answers its own requests on its socket. */
export const AGENT_ANSWERED_FILE = '/run/krater/agent.answered'

/** Repairs by the machine's init, one per line, for the load balancer's history. The reader removes the file. */
export const INIT_REPAIRS_FILE = '/run/krater/init.repairs'

/** Written by sshd on machines that the controller reaches by SSH. */
export const SSHD_PID_FILE = '/run/sshd.pid'

/**
 * Relays connections to HAProxy's listeners: a client writes a line with a relayRequestSchema, and what follows goes to
 * the listener and back. For proofs of what a listener serves.
 */
export const RELAY_SOCKET = '/run/krater/relay.sock'

/** In a pair, where only one amphora has the VIP, each listener that terminates TLS can also be reached here. */
export const proofSocket = (listenerId: string): string => `/run/krater/proof-${listenerId}.sock`

/** HAProxy's name for that socket. */
export const PROOF_NAME = 'proof'

/**
 * What listeners answer to challenges by HTTP, beside HAProxy's file: a line holds the path that a CA asks for and the
 * answer. HAProxy's runtime API knows the file by the same name.
 */
export const CHALLENGES_FILE = 'challenges.map'

/** Where CAs look for the answer to a challenge by HTTP (RFC 8555, section 8.3). */
export const CHALLENGES_PATH = '/.well-known/acme-challenge/'

/** `stats socket` of the HAProxy worker: mode 600, level admin, expose-fd listeners. */
export const HAPROXY_SOCKET = '/run/krater/haproxy.sock'

/** Passed to HAProxy as `-S`, never in a configuration file. */
export const HAPROXY_MASTER_SOCKET = '/run/krater/haproxy-master.sock'

export const HAPROXY_PID_FILE = '/run/krater/haproxy.pid'

/**
 * `server-state-file` in `global`, with `load-server-state-from-file global` in `defaults`. The agent writes it
 * before every reload, so that a member that is down stays down in the new worker. It contains only servers whose
 * line did not change.
 */
export const HAPROXY_SERVER_STATE_FILE = '/run/krater/haproxy.server-state'

/** Account and group of the HAProxy worker (`user` and `group`). */
export const HAPROXY_USER = 'haproxy'
export const HAPROXY_GROUP = 'haproxy'

/** The `chroot` of the HAProxy worker: an empty directory that it cannot write to. The agent creates it. */
export const HAPROXY_CHROOT = '/run/haproxy-root'

/** The agent receives HAProxy's log lines here, by UDP on the loopback address. */
export const LOG_PORT = 5514

/**
 * The whole `log` line of `global`, used by `log global` in `defaults`. Server changes are notices. Request lines
 * are informational, and `option dontlog-normal` suppresses them. A log file would not work: HAProxy makes its log
 * descriptor non-blocking and thereby loses O_APPEND.
 */
export const HAPROXY_LOG_LINE = `log 127.0.0.1:${LOG_PORT} format iso local0 info`

/** The `stats socket` line of `global`. */
export const HAPROXY_SOCKET_LINE = `stats socket ${HAPROXY_SOCKET} mode 600 level admin expose-fd listeners`

/** HAProxy shares its stick tables here, on the loopback address or, in a pair, on the VRRP address. */
export const HAPROXY_PEERS_PORT = 1025

/** Amphorae tell each other here, at their own addresses, about flows of UDP and SCTP. */
export const FLOWS_PORT = 1027

/** The proxies of HAProxy's configuration that only carry metrics between HAProxy, the agent and a PROMETHEUS listener. */
export const METRICS_PROXY = 'prometheus-exporter'

/** Their names in HAProxy's configuration begin with this: proxies that only pick challenges over TLS out of traffic. */
export const CHALLENGE_PROXY = 'acme-'

/** HAProxy serves its metrics to the agent here. */
export const HAPROXY_METRICS_SOCKET = '/run/krater/haproxy-metrics.sock'

/** The agent serves them under Octavia's names here, by TCP on the loopback address: HAProxy's worker is in a chroot. */
export const METRICS_PORT = 5516

/** keepalived's `track_file`: `0` while HAProxy serves, `-254` (a FAULT) while it does not. */
export const HAPROXY_TRACK_FILE = '/run/krater/haproxy.track'

export const KEEPALIVED_PID_FILE = '/run/krater/keepalived.pid'
export const KEEPALIVED_VRRP_PID_FILE = '/run/krater/keepalived-vrrp.pid'

/** Bounded log files of the agent, HAProxy and keepalived. */
export const LOG_DIRECTORY = '/run/krater/log'
