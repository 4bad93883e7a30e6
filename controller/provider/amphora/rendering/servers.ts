import type { Server } from '../../../../amphora-agent/protocol/desired.js'
import type { HealthMonitorNode, MemberNode } from '../../../load-balancer/tree.js'
import {
  address,
  bracketedAddress,
  type ConfigurationWord,
  endpoint,
  identifier,
  integer,
  keywords,
  seconds,
  textOf,
} from './quote.js'

/** The words of a server line. */
export type ServerWords = {
  name: ConfigurationWord
  endpoint: ConfigurationWord
  number: ConfigurationWord
  weight: ConfigurationWord
  backup: boolean
  disabled: boolean
  options: readonly ConfigurationWord[]
}

/**
 * One member as a server, twice from the same words: as they stand in the configuration file, and in the structured form from which
 * the agent builds runtime commands.
 * @throws ProvisioningFault for a value that cannot be written
 */
export function renderServer(
  member: MemberNode,
  monitor: HealthMonitorNode | null,
): { words: ServerWords; server: Server } {
  const what = `Member ${member.id}`
  const words: ServerWords = {
    name: identifier(member.id, `${what}, id`),
    endpoint: endpoint(member.address, member.protocolPort, `${what}, address`),
    number: integer(member.serverNumber, `${what}, server number`, 1, 2_147_483_647),
    weight: integer(member.weight, `${what}, weight`, 0, 256),
    backup: member.backup,
    // still a server, so that it reports MAINT and keeps its place
    disabled: !member.adminStateUp,
    options: monitor === null ? [] : checkOptions(member, monitor),
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
      options: words.options.flatMap(option => textOf(option).split(' ')),
    },
  }
}

function checkOptions(member: MemberNode, monitor: HealthMonitorNode): ConfigurationWord[] {
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
  return options
}
