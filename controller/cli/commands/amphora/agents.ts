import type { ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import { sshAccess } from '../../../compute/enrolled/hosts.js'
import type { HostAgents } from '../../../compute/host-agents.js'
import { createLog } from '../../../log/log.js'
import { agentTarget } from '../../../provider/amphora/agent/agent.js'
import { SshAgentConnections } from '../../../provider/amphora/agent/connection.js'
import { hostAgents } from '../../../provider/amphora/agent/host-agents.js'
import { keyFiles, loadKeys } from '../../state-directory/keys.js'
import { type Instance, openDatabase } from '../../wiring/instance.js'

const LIMITS = { timeoutMs: 10_000, connectTimeoutMs: 5_000 }

/** Requests to agents, with the controller's SSH key. */
export type Agents = {
  status: (amphoraId: string, address: string) => Promise<ResultOf['status'] & Pick<ResultOf['hello'], 'holdsVip'>>
  logs: (amphoraId: string, address: string, lines: number) => Promise<string[]>
}

/** Runs `work` with connections to agents, then closes them. */
export const withAgents = <T>(instance: Instance, work: (agents: Agents) => Promise<T>): Promise<T> =>
  withConnections(instance, ({ connections, masterKey }) => {
    const target = (amphoraId: string, address: string) => agentTarget(masterKey, amphoraId, address)
    return work({
      status: async (id, address) => {
        const [status, { holdsVip }] = await Promise.all([
          connections.request(target(id, address), { verb: 'status' }, LIMITS),
          connections.request(target(id, address), { verb: 'hello' }, LIMITS),
        ])
        return { ...status, holdsVip }
      },
      logs: async (id, address, lines) =>
        (await connections.request(target(id, address), { verb: 'logs', lines }, LIMITS)).lines,
    })
  })

/** As withAgents, with the agents of enrolled hosts. */
export const withHostAgents = <T>(instance: Instance, work: (agents: HostAgents) => Promise<T>): Promise<T> =>
  withConnections(instance, ({ connections }) => work(hostAgents(connections)))

async function withConnections<T>(
  instance: Instance,
  work: (parts: { connections: SshAgentConnections; masterKey: Buffer }) => Promise<T>,
): Promise<T> {
  const keys = await loadKeys(keyFiles(instance.config, instance.directory))
  const database = openDatabase(instance, 'load_balancer', 'amphora')
  const connections = new SshAgentConnections({
    controllerKey: keys.controllerSsh.privateKey,
    accessOf: id => sshAccess(database, id),
    log: createLog('krater', 'warn'),
  })
  try {
    return await work({ connections, masterKey: keys.amphoraMaster })
  } finally {
    await connections.stop()
    await database.destroy()
  }
}
