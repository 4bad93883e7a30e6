import type { Boot } from '../../../amphora-agent/protocol/boot.js'
import { AGENT_SOCKET } from '../../../amphora-agent/protocol/messages.js'
import { RELAY_SOCKET } from '../../../amphora-agent/protocol/paths.js'
import type { MachineSpec } from '../driver.js'
import type { Limits } from './cgroup.js'
import { MachineError } from './machine-error.js'

/** A machine's individual or secret files, by their names. */
export type BootData = Readonly<
  Record<'host-key' | 'controller-key' | 'operator-key' | 'boot' | 'management-address' | 'hostname', string>
>

/** The data that a machine receives at its start. @param limits the limits in force @throws MachineError */
export function createBootData(
  { amphoraId, managementPort, identity, healthManagers, beatIntervalSeconds, keyChannel }: MachineSpec,
  limits: Partial<Limits>,
): BootData {
  const [first] = managementPort?.fixedIps ?? []
  if (first === undefined) throw new MachineError(`The management port of amphora ${amphoraId} has no address.`)
  const boot: Boot = {
    amphoraId,
    heartbeatKey: identity.heartbeatKey.toString('hex'),
    heartbeatKeyId: identity.heartbeatKeyId,
    healthManagers,
    beatIntervalSeconds,
    keyChannel,
    limits,
  }
  return {
    'host-key': identity.sshHostKey,
    // Permits only the agent's sockets. sshd_config independently enforces the same.
    'controller-key': `restrict,port-forwarding,permitopen="[${AGENT_SOCKET}]:*",permitopen="[${RELAY_SOCKET}]:*" ${identity.controllerPublicKey.trim()}\n`,
    'operator-key': `${identity.operatorPublicKey.trim()}\n`,
    boot: JSON.stringify(boot),
    'management-address': `${first.address}\n`,
    hostname: `amphora-${amphoraId}\n`,
  }
}
