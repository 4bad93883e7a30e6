import { CURRENT_HAPROXY, CURRENT_KEEPALIVED } from '../../../amphora-agent/apply/store.js'

/** What a harm needs to know of its amphora. */
export type Target = {
  /** The names in HAProxy's configuration. */
  listener: string
  backend: string
  server: string
  /** The interface of the VIP, and the VIP with its prefix length. */
  nic: string
  vip: string
  /** The members' network. */
  route: string
}

const haproxy = (command: string) => `echo '${command}' | socat -t5 - UNIX:/run/krater/haproxy.sock`
/** The oldest process is the master. */
const master = '$(pgrep -o -x haproxy)'
const worker = '$(pgrep -n -x haproxy)'
const agent = '$(pgrep -f [a]gent.mjs)'
const sshd = '$(pgrep -f [l]istener)'
/** In a directory that may be emptied. */
const fillDisk = 'cat /dev/zero >/var/tmp/fill 2>/dev/null || true'

/** Harm done to an amphora behind the controller's back, as shell text for its root. */
export const harms = {
  editFile: () => `sed -i s/roundrobin/source/ ${CURRENT_HAPROXY}`,
  deleteFile: () => `rm ${CURRENT_HAPROXY}`,
  deleteFileAndKill: () => `rm ${CURRENT_HAPROXY}; kill -9 ${master}`,
  breakFileAndKill: () => `echo bogus >${CURRENT_HAPROXY}; kill -9 ${master}`,
  editFileAndReload: () => `sed -i s/roundrobin/source/ ${CURRENT_HAPROXY} && kill -USR2 ${master}`,
  disableServer: ({ backend, server }: Target) => haproxy(`disable server ${backend}/${server}`),
  disableChecks: ({ backend, server }: Target) => haproxy(`disable health ${backend}/${server}`),
  disableFrontend: ({ listener }: Target) => haproxy(`disable frontend ${listener}`),
  shutDownFrontend: ({ listener }: Target) => haproxy(`shutdown frontend ${listener}`),
  lowerLimits: ({ listener }: Target) => haproxy(`set maxconn global 3; set maxconn frontend ${listener} 2`),
  lowerServerLimit: ({ backend, server }: Target) => haproxy(`set maxconn server ${backend}/${server} 1`),
  removeVip: ({ nic, vip }: Target) => `ip address delete ${vip} dev ${nic}`,
  takeInterfaceDown: ({ nic }: Target) => `ip link set ${nic} down`,
  removeRoute: ({ route }: Target) => `ip route delete ${route}`,
  flushFilter: () => 'nft flush ruleset',
  stopWatchingAndRemoveRoute: ({ route }: Target) =>
    `pkill -STOP -xf 'ip -oneline monitor .*'; ip route delete ${route}`,
  killWatcherAndFlushFilter: () => "pkill -KILL -xf 'nft monitor'; nft flush ruleset",
  killAgent: () => `kill -9 ${agent}`,
  stopAgent: () => `kill -STOP ${agent}`,
  stopSshd: () => `kill -STOP ${sshd}`,
  removeAgentSocket: () => 'rm /run/krater/agent.sock',
  deleteState: () => 'rm -rf /run/krater',
  deleteStateAndKillAgent: () => `rm -rf /run/krater; kill -9 ${agent}`,
  fillDisk: () => fillDisk,
  fillDiskAndKillHaproxy: () => `${fillDisk}; kill -9 ${master}`,
  fillDiskAndKillAgent: () => `${fillDisk}; kill -9 ${agent}`,
  killHaproxy: () => `kill -9 ${master}`,
  killWorker: () => `kill -9 ${worker}`,
  stopHaproxy: () => 'pkill -STOP -x haproxy',
  killKeepalived: () => 'pkill -KILL -x keepalived',
  terminateKeepalived: () => 'pkill -TERM -x keepalived',
  stopKeepalived: () => 'pkill -STOP -x keepalived',
  breakKeepalivedAndKill: () => `echo bogus >${CURRENT_KEEPALIVED}; pkill -KILL -x keepalived`,
} as const satisfies Record<string, (target: Target) => string>
