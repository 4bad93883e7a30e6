import { amphoraIdentity, HEARTBEAT_KEY_ID } from '../../../compute/amphora-identity.js'
import type { ComputeDriver, Machine, MachineSpec } from '../../../compute/driver.js'
import { type NetworkDriver, PORT_OWNER, type Port } from '../../../network/driver.js'
import type { AgentConnections } from '../agent/connection.js'
import { managementPortName } from '../plan/desired-ports.js'
import type { MachineTurns } from './machine-turns.js'

/** What making an amphora's machine and reaching its agent takes. */
export type MachineParts = {
  network: NetworkDriver
  compute: ComputeDriver
  agents: AgentConnections
  turns: MachineTurns
  /** 32 bytes; see compute/amphora-identity.ts. */
  masterKey: Buffer
  controllerPublicKey: string
  operatorPublicKey: string
  healthManagers: MachineSpec['healthManagers']
  beatIntervalSeconds: number
}

export type MadeMachine = { machine: Machine; managementPort: Port; managementAddress: string }

/**
 * Gives an amphora its management port and a running machine. The same amphora id gives the same port, keys and machine, so it
 * may be repeated at any time.
 * @param held throws when the caller may act no longer
 */
export async function makeMachine(
  parts: MachineParts,
  { amphoraId, projectId }: Pick<MachineSpec, 'amphoraId' | 'projectId'>,
  held: () => void,
): Promise<MadeMachine> {
  const { network, compute, masterKey } = parts
  const management = await network.managementNetwork()
  held()
  const managementPort = await network.ensurePort({
    networkId: management.network.id,
    fixedIps: [{ subnetId: management.subnet.id }],
    projectId: management.network.projectId,
    name: managementPortName(amphoraId),
    deviceId: amphoraId,
    deviceOwner: PORT_OWNER.management,
  })
  const [fixedIp] = managementPort.fixedIps
  if (fixedIp === undefined) throw new Error(`The management port ${managementPort.id} has no address`)
  const identity = amphoraIdentity(masterKey, amphoraId)
  held()
  const machine = await compute.create({
    amphoraId,
    projectId,
    managementPort,
    managementPrefix: Number(management.subnet.cidr.split('/')[1]),
    identity: {
      sshHostKey: identity.sshHostKeyPrivate,
      controllerPublicKey: parts.controllerPublicKey,
      operatorPublicKey: parts.operatorPublicKey,
      heartbeatKey: identity.heartbeatKey,
      heartbeatKeyId: HEARTBEAT_KEY_ID,
    },
    healthManagers: parts.healthManagers,
    beatIntervalSeconds: parts.beatIntervalSeconds,
  })
  return { machine, managementPort, managementAddress: fixedIp.address }
}

/** How an amphora's row records its machine. */
export const machineColumns = ({ machine, managementPort, managementAddress }: MadeMachine) => ({
  compute_id: machine.computeId,
  lb_network_ip: managementAddress,
  management_port_id: managementPort.id,
})

/** Deletes every port of an amphora, whatever it was for. */
export async function deletePorts(network: NetworkDriver, amphoraId: string, held: () => void): Promise<void> {
  for (const port of await network.portsOf(amphoraId)) {
    held()
    await network.deletePort(port.id)
  }
}
