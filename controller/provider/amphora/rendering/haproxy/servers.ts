import type { Server } from '../../../../../amphora-agent/protocol/desired.js'
import { PING_PORT } from '../../../../../amphora-agent/protocol/ping.js'
import type { HealthMonitorNode, MemberNode, PoolProtocol } from '../../../../load-balancer/tree/tree.js'
import {
  address,
  bracketedAddress,
  type ConfigurationWord,
  endpoint,
  identifier,
  integer,
  joined,
  keywords,
  pingMessage,
  seconds,
  serverName,
  sniOf,
  textOf,
} from '../quote.js'

/** Words of a server line. */
export type ServerWords = {
  name: ConfigurationWord
  endpoint: ConfigurationWord
  number: ConfigurationWord
  weight: ConfigurationWord
  backup: boolean
  disabled: boolean
  /** All options as one text, or null. */
  options: ConfigurationWord | null
}

/** Context for rendering a member. */
export type ServerContext = {
  /** Name of its `backend` section. */
  backend: string
  protocol: PoolProtocol
  /** Words of TLS towards it; empty without. */
  tls: readonly ConfigurationWord[]
  /** What HAProxy asks members for by SNI if they have no host name of their own; null for nothing. */
  clientName: ConfigurationWord | null
  monitor: HealthMonitorNode | null
  /** Connections to it may serve further requests. */
  reused: boolean
  /** Its value of the persistence cookie. */
  cookie: ConfigurationWord | null
}

/**
 * Renders a member as a server in two forms: words for the configuration file, and the structured form from which the
 * agent builds runtime commands.
 * @throws ProvisioningFault for a value that cannot be written
 */
export function renderServer(member: MemberNode, context: ServerContext): { words: ServerWords; server: Server } {
  const what = `Member ${member.id}`
  const options = [
    ...(context.cookie === null ? [] : [keywords('cookie'), context.cookie]),
    ...proxyOptions(context.protocol),
    ...tlsOptions(member, context),
    // Defaults for servers in the file, but not for servers added at runtime.
    ...(context.reused ? [keywords('pool-purge-delay 5s pool-max-conn -1')] : []),
    ...(context.monitor === null ? [] : monitorOptions(member, context.monitor, context)),
  ]
  const words: ServerWords = {
    name: identifier(member.id, `${what}, id`),
    endpoint: endpoint(member.address, member.protocolPort, `${what}, address`),
    number: integer(member.serverNumber, `${what}, server number`, 1, 2_147_483_647),
    weight: integer(member.weight, `${what}, weight`, 0, 256),
    backup: member.backup,
    // It stays a server, so that it reports MAINT and keeps its number.
    disabled: !member.adminStateUp,
    options: options.length === 0 ? null : joined(options),
  }
  return {
    words,
    server: {
      name: member.id,
      number: member.serverNumber,
      address: textOf(address(member.address, `${what}, address`)),
      port: member.protocolPort,
      weight: member.weight,
      disabled: words.disabled,
      backup: words.backup,
      options: options.flatMap(option => textOf(option).split(' ')),
    },
  }
}

function proxyOptions(protocol: PoolProtocol): ConfigurationWord[] {
  if (protocol === 'PROXY') return [keywords('send-proxy')]
  return protocol === 'PROXYV2' ? [keywords('send-proxy-v2')] : []
}

/** The host name that a member has as its name; null if its name is something else. */
const hostNameOf = ({ name }: MemberNode): string | null =>
  /^(?=.{1,253}$)([a-z0-9_]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/i.test(name) ? name : null

function tlsOptions(member: MemberNode, { tls, clientName }: ServerContext): ConfigurationWord[] {
  if (tls.length === 0) return []
  const name = hostNameOf(member)
  if (name !== null) return [...tls, sniOf(name)]
  return clientName === null ? [...tls] : [...tls, keywords('sni'), clientName]
}

function monitorOptions(member: MemberNode, monitor: HealthMonitorNode, context: ServerContext): ConfigurationWord[] {
  return monitor.type === 'PING' ? pingOptions(member, monitor, context) : checkOptions(member, monitor, context)
}

function checkOptions(
  member: MemberNode,
  monitor: HealthMonitorNode,
  { protocol, tls }: ServerContext,
): ConfigurationWord[] {
  const what = `Health monitor ${monitor.id}`
  const options = [
    keywords('check'),
    keywords('inter'),
    seconds(monitor.delay, `${what}, delay`),
    keywords('fall'),
    integer(monitor.maxRetriesDown, `${what}, max_retries_down`, 1, 100),
    keywords('rise'),
    integer(monitor.maxRetries, `${what}, max_retries`, 1, 100),
  ]
  if (member.monitorAddress !== null) {
    options.push(keywords('addr'), bracketedAddress(member.monitorAddress, `Member ${member.id}, monitor_address`))
  }
  if (member.monitorPort !== null) {
    options.push(keywords('port'), integer(member.monitorPort, `Member ${member.id}, monitor_port`, 1, 65535))
  }
  // For servers added at runtime, send-proxy does not imply check-send-proxy. A check that goes to another
  // address or port than the traffic gets no PROXY header.
  const checksTrafficPort = member.monitorAddress === null && member.monitorPort === null
  if (checksTrafficPort && proxyOptions(protocol).length > 0) options.push(keywords('check-send-proxy'))
  return [...options, ...checkTlsOptions(member, monitor, tls)]
}

/**
 * Checks of a pool that speaks TLS use its certificates. For servers added at runtime, ssl does not imply check-ssl, and
 * sni and alpn never apply to checks.
 */
function checkTlsOptions(
  member: MemberNode,
  monitor: HealthMonitorNode,
  tls: readonly ConfigurationWord[],
): ConfigurationWord[] {
  const speaksTls = tls.length > 0
  if (!speaksTls && monitor.type !== 'HTTPS' && monitor.type !== 'TLS-HELLO') return []
  const name = monitor.domainName ?? hostNameOf(member)
  return [
    keywords(speaksTls ? 'check-ssl' : 'check-ssl verify none'),
    ...(speaksTls && monitor.type.startsWith('HTTP') ? [keywords('check-alpn http/1.1')] : []),
    ...(name === null || (!speaksTls && monitor.type !== 'HTTPS')
      ? []
      : [keywords('check-sni'), serverName(name, `Health monitor ${monitor.id}, domain_name`)]),
  ]
}

/** HAProxy cannot ping, so its agent-check asks the amphora's agent. */
function pingOptions(member: MemberNode, monitor: HealthMonitorNode, { backend }: ServerContext): ConfigurationWord[] {
  const question = {
    subject: `${backend}:${member.id}`,
    address: textOf(address(member.monitorAddress ?? member.address, `Member ${member.id}, monitor_address`)),
    timeoutSeconds: pingTimeout(monitor),
    rise: monitor.maxRetries,
    fall: monitor.maxRetriesDown,
  }
  return [
    keywords(`agent-check agent-addr 127.0.0.1 agent-port ${PING_PORT} agent-inter`),
    seconds(monitor.delay, `Health monitor ${monitor.id}, delay`),
    keywords('agent-send'),
    pingMessage(question, `Member ${member.id}, ping`),
  ]
}

const MAX_PING_SECONDS = 3600

/** Seconds, from 1 to MAX_PING_SECONDS. */
export const pingTimeout = (monitor: HealthMonitorNode): number =>
  Math.min(Math.max(monitor.timeout, 1), MAX_PING_SECONDS)
