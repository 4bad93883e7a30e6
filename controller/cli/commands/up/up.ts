import { Option } from 'commander'
import type { Configuration } from '../../../config/schema.js'
import { execute } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { BuiltInNetworks } from '../../../network/bootstrap.js'
import { networkDriver } from '../../../network/drivers.js'
import { providerNetworks } from '../../../network/local/uplinks/provider-networks.js'
import { Uplinks } from '../../../network/local/uplinks/uplinks.js'
import { endProcesses } from '../../../process/process-identity.js'
import { THREADS_FOR_ALL_PROCESSORS } from '../../../process/thread-pool.js'
import { requireProtectedApis } from '../../api-tls/plain-http.js'
import type { Command } from '../../command.js'
import { explain } from '../../explain.js'
import { sentenceOf } from '../../faults/fault.js'
import { bootstrap } from '../../first-start/bootstrap.js'
import { completeConfiguration } from '../../first-start/complete-configuration.js'
import { prepareTables } from '../../first-start/tables.js'
import {
  listenersOf,
  requireDiskSpace,
  requirePackages,
  requireRoot,
  requireSearchablePath,
} from '../../host/checks.js'
import { takenPorts } from '../../host/ports.js'
import { startPrivateCluster, stopPrivateCluster, watchCluster } from '../../host/postgres.js'
import { OperatorError } from '../../operator-error.js'
import { usesPrivateCluster } from '../../state-directory/database-urls.js'
import { ensureInstanceId, ensureStateDirectory } from '../../state-directory/instance.js'
import { recordRunning, runningProcesses } from '../../state-directory/run-record.js'
import { dim, print } from '../../terminal.js'
import { fabricOf } from '../../wiring/drivers.js'
import { type Instance, openDatabase } from '../../wiring/instance.js'
import { openKeyring } from '../../wiring/key-manager/keyring.js'
import { ensureHostInterfaces } from '../../wiring/network/host-networks.js'
import { prepareOvn, requireSameSwitching } from '../../wiring/network/ovn.js'
import { registerThisHost } from '../../wiring/this-host.js'
import { startInBackground } from './detach.js'
import { join } from './join.js'
import { lockStateDirectory } from './lock.js'
import { reportToParent } from './messages.js'
import { OUTSIDE_UNDECIDED, offerOutside } from './offer-outside.js'
import { createSteps } from './steps.js'
import { summaryOf } from './summary.js'
import { type ChildName, createSupervisor } from './supervisor.js'

export const command: Command = {
  options: [
    new Option('--detach', 'run in the background; return once everything works'),
    new Option('--join <file>', 'become another controller host, with the bundle of `krater controller add`'),
    new Option('--yes', 'do not ask: load balancers may reach what this machine reaches (network.outside)'),
  ],
  run: async (directory, { detach, join: file, yes }: { detach?: boolean; join?: string; yes?: boolean }) => {
    requireRoot()
    if (file !== undefined) await join(directory, file)
    await offerOutside(directory, yes ?? false, process.env)
    await (detach ? startInBackground : up)(directory)
  },
}

/** One process per API: a busy or crashed API does not affect the others. */
const childrenOf = ({ config }: Instance): readonly ChildName[] => [
  ...(config.identity.external_url === undefined ? (['identity-api'] as const) : []),
  ...(['network-api', 'load-balancer-api', 'key-manager-api'] as const),
  ...(networkDriver(config.network.driver).onHost ? (['network-worker'] as const) : []),
  ...(['worker', 'health-manager', 'key-manager-worker'] as const),
  ...(config.key_manager.acme_server.enable ? (['acme-validator'] as const) : []),
  ...(config.key_manager.keystone_notifications.enable ? (['keystone-listener'] as const) : []),
]

/** Commands of the processes whose name is not their command. */
const COMMANDS: Readonly<Partial<Record<ChildName, readonly string[]>>> = {
  'identity-api': ['api', '--only', 'identity'],
  'network-api': ['api', '--only', 'network'],
  'load-balancer-api': ['api', '--only', 'load-balancer'],
  'key-manager-api': ['api', '--only', 'key-manager'],
  'network-worker': ['network', 'worker'],
  'key-manager-worker': ['key-manager', 'worker'],
  'acme-validator': ['key-manager', 'acme-validator'],
}

/**
 * Runs the whole service on this machine until SIGTERM or Ctrl-C: the private PostgreSQL if configured, tables, first
 * users and networks, then the supervised processes. Everything it starts stops with it; amphorae keep serving.
 * @throws OperatorError when a prerequisite is missing or a port is taken
 */
export async function up(directory: string): Promise<void> {
  try {
    await run(directory)
  } catch (error) {
    reportToParent({ kind: 'failed', text: explain(error, directory).text })
    throw error
  }
}

async function run(directory: string): Promise<void> {
  const stopRequest = waitForStopSignal()
  const report = createReporter()
  requireRoot()
  ensureStateDirectory(directory)
  const unlock = await lockStateDirectory(directory)
  if (unlock === null) {
    const other = runningProcesses(directory).find(({ name }) => name === 'up')
    throw new OperatorError(
      `Krater is already running on ${directory}${other === undefined ? '' : ` (pid ${other.identity.pid})`}. Stop it with \`krater down\`. To run a second one, set another KRATER_STATE_DIR and other ports.`,
    )
  }
  // Children of a killed `krater up` exit by themselves. End those that hang.
  await endProcesses(
    runningProcesses(directory).map(({ identity }) => identity),
    { graceMs: 10_000 },
  )
  const removeRecord = recordRunning(directory, 'up')
  const undo: (() => Promise<unknown>)[] = []
  try {
    const isReady = await start(directory, { report, undo, stopRequest })
    if (isReady) reportToParent({ kind: 'ready' })
    const signal = await stopRequest
    report(`${signal}: stopping; amphorae keep serving`)
  } finally {
    for (const step of undo.reverse()) await step().catch(error => report(String(error)))
    removeRecord()
    unlock()
  }
  report('Stopped.')
}

type Running = {
  report: (line: string) => void
  /** Cleanup steps, run in reverse order. */
  undo: (() => Promise<unknown>)[]
  /** Resolves at a signal to stop. */
  stopRequest: Promise<unknown>
}

/** Starts everything in order. @returns false when a signal to stop comes before everything is ready */
async function start(directory: string, running: Running): Promise<boolean> {
  const { report, undo, stopRequest } = running
  const steps = createSteps(report)
  const { instance, networks } = await prepare(directory, steps, running).finally(steps.end)

  const children = childrenOf(instance)
  report(`Starting ${children.join(', ')}`)
  const supervisor = createSupervisor({
    stateDirectory: directory,
    command: name => [process.execPath, process.argv[1] ?? '', '--state-dir', directory, ...(COMMANDS[name] ?? [name])],
    environment: { UV_THREADPOOL_SIZE: String(THREADS_FOR_ALL_PROCESSORS), ...process.env },
    report,
  })
  undo.push(supervisor.stop)
  const ready = supervisor.startAll(children).then(() => true)
  if (!(await Promise.race([ready, stopRequest.then(() => false)]))) return false
  for (const line of await summaryOf(instance)) report(line)
  if (networks !== null && instance.config.network.outside === undefined) report(OUTSIDE_UNDECIDED)
  return true
}

/** Does what the processes find done. @param steps reports what takes long on a slow machine */
async function prepare(
  directory: string,
  steps: ReturnType<typeof createSteps>,
  { report, undo }: Pick<Running, 'report' | 'undo'>,
): Promise<{ instance: Instance; networks: BuiltInNetworks | null }> {
  const instanceId = ensureInstanceId(directory)
  const { config, save } = await completeConfiguration(directory, instanceId, process.env)
  const instance: Instance = { directory, config }
  await requireProtectedApis(config, listenersOf(config, null))
  requirePackages(instance)
  await requireSameSwitching(instance)
  requireDiskSpace(directory)
  await requireFreePorts(instance, healthManagerHostBefore(config))
  save(report)

  if (usesPrivateCluster(instance.config, directory)) {
    requireSearchablePath(directory)
    steps.begin('Starting PostgreSQL')
    await startPrivateCluster(directory)
    undo.push(() => stopPrivateCluster(directory))
    undo.push(watchCluster(directory, report))
  }
  steps.begin('Updating the tables')
  await prepareTables(instance)
  const networks = await bootstrap(instance)
  await checkMasterKeys(instance)
  await registerAndRecheck(instance)
  if (networkDriver(config.network.driver).switching === 'ovn') {
    steps.begin('Starting OVN')
    await prepareOvn(instance)
  }
  await requireFreePorts(instance, await connectHost(instance, instanceId, networks))
  if (networks !== null && networkDriver(config.network.driver).switching === 'bridges')
    for (const line of await connectPhysicalNetworks(instance)) report(line)
  return { instance, networks }
}

/** A wrong key is reported once, before any process fails for it. @throws OperatorError */
async function checkMasterKeys(instance: Instance): Promise<void> {
  const database = openDatabase(instance, 'key_manager', 'up')
  try {
    const { backends } = await openKeyring(instance, database)
    await Promise.all([...backends.values()].map(backend => backend.stop()))
  } finally {
    await database.destroy()
  }
}

/**
 * Makes this host known. Its amphorae may have died while Krater was down: recheck its load balancers now instead of
 * after missed heartbeats.
 */
async function registerAndRecheck(instance: Instance): Promise<void> {
  const database = openDatabase(instance, 'load_balancer', 'up')
  try {
    const { id } = await registerThisHost(instance, database)
    await execute(database, sql`UPDATE load_balancer SET recheck_at = now() WHERE host_id IS NULL OR host_id = ${id}`)
  } finally {
    await database.destroy()
  }
}

/** Where the health manager listens without networks on this host. */
const LOOPBACK = '127.0.0.1'

/** Connects the host to the built-in networks. @returns the address of the health manager */
async function connectHost(
  { directory, config }: Instance,
  instanceId: string,
  networks: BuiltInNetworks | null,
): Promise<string> {
  const host = config.health_manager.host
  if (networks === null) return host ?? LOOPBACK
  const fabric = fabricOf(directory)
  const gateway = networks.management.subnets.find(({ gatewayIp }) => gatewayIp !== null)?.gatewayIp
  if (gateway === undefined || gateway === null) {
    throw new OperatorError('The management network has no subnet with a gateway.')
  }
  await ensureHostInterfaces(fabric, instanceId, networks, config)
  return host ?? gateway
}

/** Joins networks to the physical networks that they are on. @returns a line for each that leads nowhere */
async function connectPhysicalNetworks({ directory, config }: Instance): Promise<string[]> {
  const database = openDatabase({ directory, config }, 'network', 'up')
  try {
    const uplinks = new Uplinks(fabricOf(directory))
    const problems = await uplinks.ensure(() => providerNetworks(database), config.network.physical_networks)
    return problems.map(
      ({ networkId, reason, remedy }) => `The network ${networkId} leads nowhere: ${reason}. What to do: ${remedy}`,
    )
  } finally {
    await database.destroy()
  }
}

/** Null for a host on its own networks: the address exists only once it is connected to them. */
function healthManagerHostBefore({ network, health_manager }: Configuration): string | null {
  return networkDriver(network.driver).onHost ? null : (health_manager.host ?? LOOPBACK)
}

async function requireFreePorts({ config }: Instance, healthManagerHost: string | null): Promise<void> {
  const taken = await takenPorts(listenersOf(config, healthManagerHost))
  if (taken.length > 0) throw new OperatorError(taken.map(sentenceOf).join('\n'))
}

function createReporter(): (line: string) => void {
  const started = performance.now()
  return line => {
    const text = `${dim(`${((performance.now() - started) / 1000).toFixed(1).padStart(6)} s`)}  ${line}`
    print(text)
    reportToParent({ kind: 'line', text })
  }
}

function waitForStopSignal(): Promise<NodeJS.Signals> {
  return new Promise(resolve => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
      process.once(signal, () => resolve(signal))
      // A second signal must not end this process before its children.
      process.on(signal, () => undefined)
    }
  })
}
