import type { Port } from '../network/driver.js'

/** What a machine needs to become an amphora. */
export type MachineSpec = {
  amphoraId: string
  /** Whose share of its host it uses; null while it waits for a load balancer. */
  projectId: string | null
  managementPort: Port
  /** Prefix length of the management subnet. */
  managementPrefix: number
  /** Written into the machine before its first start; none of it is ever in a process argument or environment. */
  identity: {
    /** OpenSSH private key, made by the controller, so that the pin is known before first contact. */
    sshHostKey: string
    /** authorized_keys line (key part) of the controller, which reaches only the agent's socket. */
    controllerPublicKey: string
    /** authorized_keys line (key part) of the operators, which gives a root shell. */
    operatorPublicKey: string
    heartbeatKey: Buffer
    heartbeatKeyId: number
  }
  /** Where beats go. */
  healthManagers: { host: string; port: number }[]
  beatIntervalSeconds: number
}

/** What the host or hypervisor of a machine sees of it, without the management network. */
export type Inspection = {
  /** HAProxy is alive and listens. */
  serves: boolean
  /** What was seen, for the log. */
  finding: string
}

export type Machine = {
  amphoraId: string
  computeId: string
  state: 'running' | 'stopped'
  /** Tells its latest start from those before; absent while it has never run since, and from drivers that cannot tell. */
  start?: string
}

/** The flavor and the zone of a machine, as the API shows them. */
export type Placement = { flavor: string; zone: string }

/** A port that is plugged and whose interface stands, and the addresses from which it may send; null for one that an earlier version plugged. */
export type PluggedPort = { id: string; addresses: readonly string[] | null }

/** Where amphorae come from. Every call is idempotent, keyed by the amphora's id; each has a time limit of its own. */
export type ComputeDriver = {
  name: string
  /** Starts the machine when it does not run; a stopped or half-made one is made anew. */
  create(spec: MachineSpec): Promise<Machine & Placement>
  find(amphoraId: string): Promise<Machine | null>
  list(): Promise<Machine[]>
  /** The second opinion on a machine that cannot be heard or reached; null when it does not run, or cannot be looked into. */
  inspect(amphoraId: string): Promise<Inspection | null>
  /** Gone afterwards with all that belonged to it; no error when there was none. */
  delete(amphoraId: string): Promise<void>
  /**
   * Gives a running machine a network interface with the port's MAC address on the port's network, or lets the one that it has send from all of the
   * port's addresses. From now on the machine is one of the project's.
   */
  plug(amphoraId: string, port: Port, projectId: string): Promise<void>
  unplug(amphoraId: string, portId: string): Promise<void>
  /** The management port is left out. */
  pluggedPorts(amphoraId: string): Promise<PluggedPort[]>
  /** Amphorae that run, and lack an interface that was plugged: it is gone or down on the side of the host. Plugging it again mends it. */
  brokenInterfaces(): Promise<string[]>
}
