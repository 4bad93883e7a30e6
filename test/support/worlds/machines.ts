import { randomBytes, randomInt, randomUUID } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import ssh2, { type Client } from 'ssh2'
import { AGENT_SOCKET } from '../../../amphora-agent/protocol/messages.js'
import {
  type AmphoraIdentity,
  amphoraIdentity,
  HEARTBEAT_KEY_ID,
} from '../../../controller/compute/amphora-identity.js'
import type { ComputeDriver, MachineSpec, Placement } from '../../../controller/compute/driver.js'
import type { Limits } from '../../../controller/compute/host/cgroup.js'
import { NamespaceDriver, type NamespaceDriverOptions } from '../../../controller/compute/namespace/driver.js'
import { channelAccessOf } from '../../../controller/key-channel/keys.js'
import type { Port } from '../../../controller/network/driver.js'
import { Fabric } from '../../../controller/network/local/fabric.js'
import { eventually as eventuallyWithin } from '../eventually.js'
import { PLACEMENT } from '../inputs/placement.js'
import { newSshKeyPair } from '../inputs/ssh-keys.js'
import { ip } from './ip.js'
import { SHARES } from './machine-shares.js'
import { NO_KEY_CHANNEL } from './unbound.js'

export const quiet = pino({ level: 'silent' })

export type SshTarget = { host: string; hostKey: Buffer }

/** An installation in which machines in namespaces can be created. */
export const createLab = ({ agentBundle, limits = SHARES.limits }: { agentBundle: string; limits?: Limits }) =>
  createLabWith(parts => new NamespaceDriver({ ...parts, agentBundle, ...SHARES, limits }))

/** What every driver of machines of this host gets. */
export type LabParts = Pick<
  NamespaceDriverOptions,
  'instance' | 'directory' | 'networkMtu' | 'portFilters' | 'accounts' | 'log'
> & { fabric: Fabric }

/**
 * An installation with its own instance name, fabric, management network and keys, in which machines can be
 * created. `destroy` leaves nothing of it.
 */
export async function createLabWith<Driver extends ComputeDriver>(
  open: (parts: LabParts) => Driver,
  placement: Placement = PLACEMENT,
) {
  const instance = randomBytes(3).toString('hex').slice(0, 5)
  const directory = mkdtempSync(join(tmpdir(), `krater-machines-${instance}-`))
  const fabric = new Fabric({ instance })
  const master = randomBytes(32)
  const controller = newSshKeyPair()
  const operator = newSshKeyPair()
  const networkId = randomUUID()
  // 198.18.0.0/15 is reserved for tests of this kind (RFC 2544).
  const subnet = `198.${randomInt(18, 20)}.${randomInt(256)}`
  const driver = open({
    instance,
    directory,
    fabric,
    networkMtu: async () => 1500,
    portFilters: async () => null,
    accounts: SHARES.accounts,
    log: quiet,
  })
  await fabric.attachHost({ networkId, mtu: 1500, interfaceName: `kt${instance}`, addresses: [`${subnet}.1/24`] })
  let lastHost = 10

  function amphora(
    amphoraId: string = randomUUID(),
    projectId: string | null = 'tests',
  ): {
    spec: MachineSpec & { managementPort: Port }
    target: SshTarget & { amphoraId: string }
    identity: AmphoraIdentity
  } {
    const identity = amphoraIdentity(master, amphoraId)
    const host = `${subnet}.${++lastHost}`
    const spec = {
      amphoraId,
      projectId,
      placement,
      apart: [],
      networks: [],
      managementPrefix: 24,
      managementPort: createPort(networkId, host),
      identity: {
        sshHostKey: identity.sshHostKeyPrivate,
        controllerPublicKey: controller.public,
        operatorPublicKey: operator.public,
        heartbeatKey: identity.heartbeatKey,
        heartbeatKeyId: HEARTBEAT_KEY_ID,
      },
      healthManagers: [{ host: `${subnet}.1`, port: 5555 }],
      beatIntervalSeconds: 3,
      keyChannel: channelAccessOf(NO_KEY_CHANNEL, amphoraId),
    }
    return { spec, target: { amphoraId, host, hostKey: identity.sshHostKeyPublic }, identity }
  }

  /** The process that holds a machine, as recorded. */
  const holderOf = (amphoraId: string) =>
    Number(readFileSync(join(directory, amphoraId, 'process'), 'utf8').split(' ')[0])

  return {
    instance,
    directory,
    fabric,
    driver,
    subnet,
    controllerKey: controller.private,
    operatorKey: operator.private,
    amphora,
    namespaceOf: (amphoraId: string) => `krater-${instance}-${amphoraId}`,
    holderOf,
    /** Process 1 of a machine, by its PID on the host. */
    firstProcessOf: (amphoraId: string) => firstProcessOf(join(directory, amphoraId)),
    destroy: async () => {
      for (const { amphoraId } of await driver.list()) await driver.delete(amphoraId)
      await fabric.remove()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

export function createPort(networkId: string, address: string): Port {
  const mac = [0x02, ...randomBytes(5)].map(byte => byte.toString(16).padStart(2, '0')).join(':')
  return {
    id: randomUUID(),
    networkId,
    projectId: 'tests',
    name: '',
    macAddress: mac,
    deviceId: '',
    deviceOwner: '',
    fixedIps: [{ subnetId: randomUUID(), address }],
    allowedAddresses: [],
    securityGroups: [],
  }
}

/** Logs in over SSH; the host key must be the pinned one. */
export function login({ host, hostKey }: SshTarget, username: string, privateKey: string): Promise<Client> {
  return new Promise((resolve, reject) => {
    const client = new ssh2.Client()
    client.once('ready', () => resolve(client))
    client.once('error', reject)
    client.on('error', () => undefined)
    client.connect({
      host,
      username,
      privateKey,
      readyTimeout: 10_000,
      hostVerifier: (key: Buffer) => key.equals(hostKey),
    })
  })
}

/** Runs a command line in a session. @returns all its output */
export function execute(client: Client, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    client.exec(command, (error, stream) => {
      if (error) return reject(error)
      let output = ''
      for (const source of [stream, stream.stderr]) {
        source.on('data', (piece: Buffer) => {
          output += piece.toString()
        })
      }
      stream.once('close', () => resolve(output))
    })
  })
}

/** Runs a command line as the operator. */
export async function asOperator(target: SshTarget, operatorKey: string, command: string): Promise<string> {
  const client = await login(target, 'root', operatorKey)
  try {
    return await execute(client, command)
  } finally {
    client.destroy()
  }
}

/** Opens a channel to a Unix socket of the machine and closes it. @throws Error when it is refused */
export function openSocket(client: Client, path: string = AGENT_SOCKET): Promise<void> {
  return new Promise((resolve, reject) => {
    client.openssh_forwardOutStreamLocal(path, (error, stream) => {
      if (error) return reject(error)
      stream.destroy()
      resolve()
    })
  })
}

/** Process 1 of the machine with this directory, by its PID on the host. */
export const firstProcessOf = (machineDirectory: string): number =>
  childrenOf(Number(readFileSync(join(machineDirectory, 'process'), 'utf8').split(' ')[0]))[0]!

/** Processes of a machine: those whose network is its namespace. */
export function processesIn(namespace: string): number[] {
  if (!existsSync(`/run/netns/${namespace}`)) return []
  return ip('netns', 'pids', namespace).trim().split('\n').filter(Boolean).map(Number)
}

export const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number)

/** Checks repeatedly until there is a result. @throws Error that names it after `limitMs` */
export const eventually = <T>(what: string, look: () => T | null | Promise<T | null>, limitMs = 8_000): Promise<T> =>
  eventuallyWithin<T>(what, look, limitMs, 20)
