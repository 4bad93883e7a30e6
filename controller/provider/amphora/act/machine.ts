import { amphoraIdentity, HEARTBEAT_KEY_ID } from '../../../compute/amphora-identity.js'
import type { ComputeDriver, CreatedMachine, MachineSpec, Placement } from '../../../compute/driver.js'
import type { PlacementRules } from '../../../compute/placement.js'
import { channelAccessOf, type KeyChannelAccess } from '../../../key-channel/keys.js'
import { type NetworkDriver, PORT_OWNER, type Port } from '../../../network/driver.js'
import type { AgentBundle } from '../agent/bundle.js'
import type { AgentConnections } from '../agent/connection.js'
import { managementPortName } from '../plan/desired-ports.js'
import type { MachineTurns } from './machine-turns.js'

/** What it takes to create an amphora's machine and reach its agent. */
export type MachineParts = {
  /** The controller host to which the machines of this process are bound; null if they are bound to none. */
  hostId: string | null
  network: NetworkDriver
  compute: ComputeDriver
  placement: PlacementRules
  /** By tag, the ids of the images that this host has now. */
  images: () => ReadonlyMap<string, string>
  /** The agent that amphorae get; null if they exist only in the database. */
  agentBundle: AgentBundle | null
  agents: AgentConnections
  turns: MachineTurns
  /** 32 bytes; see compute/amphora-identity.ts. */
  masterKey: Buffer
  controllerPublicKey: string
  operatorPublicKey: string
  healthManagers: MachineSpec['healthManagers']
  beatIntervalSeconds: number
  keyChannel: KeyChannelAccess
}

export type ReachableMachine = {
  machine: CreatedMachine
  placement: Placement
  /** Null if its management address is its own. */
  managementPort: Port | null
  managementAddress: string
}

/**
 * Creates an amphora's management port and running machine. The same amphora id gives the same port, keys and
 * machine, so it is safe to repeat.
 * @param assertHeld throws when the caller may no longer act
 */
export async function createMachine(
  parts: MachineParts,
  {
    amphoraId,
    projectId,
    placement,
    apart,
    networks,
  }: Pick<MachineSpec, 'amphoraId' | 'projectId' | 'placement' | 'apart' | 'networks'>,
  assertHeld: () => void,
): Promise<ReachableMachine> {
  const { network, compute, masterKey } = parts
  const management = await network.managementNetwork()
  assertHeld()
  const managementPort =
    parts.placement.drivers.get(placement.driver)?.ownsManagement === true
      ? null
      : await network.ensurePort({
          networkId: management.network.id,
          fixedIps: [{ subnetId: management.subnet.id }],
          projectId: management.network.projectId,
          name: managementPortName(amphoraId),
          deviceId: amphoraId,
          deviceOwner: PORT_OWNER.management,
        })
  const identity = amphoraIdentity(masterKey, amphoraId)
  assertHeld()
  const machine = await compute.create({
    amphoraId,
    projectId,
    placement,
    apart,
    networks,
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
    keyChannel: channelAccessOf(parts.keyChannel, amphoraId),
  })
  const managementAddress = machine.managementAddress ?? managementPort?.fixedIps[0]?.address
  if (managementAddress === undefined) throw new Error(`The machine of amphora ${amphoraId} has no management address`)
  return { machine, placement, managementPort, managementAddress }
}

/** Columns of an amphora's row that record its machine. */
export const machineColumns = ({ machine, placement, managementPort, managementAddress }: ReachableMachine) => ({
  compute_id: machine.computeId,
  compute_driver: placement.driver,
  compute_flavor: placement.flavor,
  cached_zone: machine.zone,
  image_tag: machine.image?.tag ?? placement.imageTag,
  image_id: machine.image?.id ?? null,
  lb_network_ip: managementAddress,
  management_port_id: managementPort?.id ?? null,
})

/** Deletes every port of an amphora, whatever its purpose. */
export async function deletePorts(network: NetworkDriver, amphoraId: string, assertHeld: () => void): Promise<void> {
  for (const port of await network.portsOf(amphoraId)) {
    assertHeld()
    await network.deletePort(port.id)
  }
}
