import { createBindings } from '../../bindings/bindings.js'
import { createChallenges } from '../../bindings/challenges.js'
import { openControllerChannel } from '../../bindings/channel.js'
import { sshAccess } from '../../compute/enrolled/hosts.js'
import { newestImages } from '../../compute/images/newest.js'
import { placementRules } from '../../compute/placement.js'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { startHost } from '../../housekeeping/host-watch.js'
import { startHousekeeping } from '../../housekeeping/housekeeping.js'
import { createLog } from '../../log/log.js'
import { createMachineTurns } from '../../provider/amphora/act/machine-turns.js'
import { readAgentBundle } from '../../provider/amphora/agent/bundle.js'
import { SshAgentConnections } from '../../provider/amphora/agent/connection.js'
import { createNoopAgentConnections } from '../../provider/amphora/agent/connection-noop.js'
import { openProviders } from '../../provider/providers.js'
import { startWorker } from '../../worker/worker.js'
import type { Command } from '../command.js'
import { keyFiles, loadChannelKeys, loadKeys } from '../state-directory/keys.js'
import { openCertificateKeeper } from '../wiring/certificate-keeper.js'
import {
  agentBundle,
  computeDriverOf,
  enrolledContext,
  fabricOf,
  openCompute,
  openNetwork,
  requireInstanceId,
} from '../wiring/drivers.js'
import { databaseUrl, openDatabase, openInstance } from '../wiring/instance.js'
import { connectToAmphorae } from '../wiring/network/host-networks.js'
import { openOvn } from '../wiring/network/ovn.js'
import { requireHostId } from '../wiring/this-host.js'
import { runUntilStopped } from './run-until-stopped.js'

export const command: Command = { run: runWorker }

/** Converges load balancers and runs housekeeping until a signal to stop. */
export async function runWorker(directory: string): Promise<void> {
  const instance = openInstance(directory)
  const { config } = instance
  const log = createLog('worker', config.log_level)
  await runUntilStopped({ name: 'worker', stateDirectory: directory, log }, async () => {
    const instanceId = requireInstanceId(directory)
    const files = keyFiles(config, directory)
    const keys = await loadKeys(files)
    const database = openDatabase(instance, 'load_balancer', 'worker', log)
    // The parts below outlive the loss of their database, and would only log that it was never there.
    await maybeOne(database, sql`SELECT FROM load_balancer LIMIT 1`)
    const hostId = computeDriverOf(instance).runsMachines ? requireHostId(directory) : null
    const networkDatabase = openDatabase(instance, 'network', 'worker', log)
    const network = await openNetwork(instance, networkDatabase)
    const address = await connectToAmphorae(instance, network, { fabric: fabricOf(directory), instanceId })
    const agents = computeDriverOf(instance).runsMachines
      ? new SshAgentConnections({
          controllerKey: keys.controllerSsh.privateKey,
          accessOf: id => sshAccess(database, id),
          log,
        })
      : createNoopAgentConnections()
    const keyChannel = { host: config.key_manager.channel.host ?? address, port: config.key_manager.channel.port }
    const access = { ...loadChannelKeys(files), endpoints: [keyChannel] }
    const channel = openControllerChannel(access)
    const certificates = await openCertificateKeeper(instance, { channel, database, address, log })
    const bindings = createBindings({ keeper: certificates.keeper, database, log })
    const enrolled = enrolledContext(instance, { database, network, agents, masterKey: keys.amphoraMaster, log })
    const compute = await openCompute(instance, {
      database,
      network,
      networkDatabase,
      enrolled,
      log,
    })
    const placement = placementRules(config.compute)
    if (hostId !== null) await startHost({ database, compute, hostId, log }, placement)
    const ovn = await openOvn(instance, { database, networkDatabase, log })
    const parts = {
      database,
      hostId,
      network,
      lookAround: enrolled.lookAround,
      compute,
      placement,
      images: () => newestImages(directory),
      agentBundle: computeDriverOf(instance).runsMachines ? readAgentBundle(agentBundle) : null,
      agents,
      turns: createMachineTurns(),
      masterKey: keys.amphoraMaster,
      controllerPublicKey: keys.controllerSsh.publicLine,
      operatorPublicKey: keys.operatorSsh.publicLine,
      healthManagers: [{ host: config.health_manager.host ?? address, port: config.health_manager.port }],
      keyChannel: access,
      bindings,
      challenges: config.load_balancer.key_manager_url === undefined ? createChallenges({ channel, database }) : null,
      config,
      ovn: ovn.provider,
      log,
    }
    const haproxy = {
      oldWorkers: { most: config.compute.old_workers, memoryMib: config.compute.old_workers_memory },
      logRequests: config.load_balancer.log_requests,
    }
    const providers = await openProviders({ ...parts, haproxy, config: config.health_manager })
    const worker = await startWorker({
      database,
      databaseUrl: databaseUrl(instance, 'load_balancer'),
      providers,
      config: config.worker,
      hostId,
      log,
    })
    const housekeeping = await startHousekeeping(parts)
    return async () => {
      await Promise.all([worker.stop(), housekeeping.stop()])
      await agents.stop()
      channel.close()
      await certificates.close()
      await ovn.stop()
      await Promise.all([database.destroy(), networkDatabase.destroy()])
    }
  })
}
