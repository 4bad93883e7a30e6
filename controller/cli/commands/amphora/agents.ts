import type { ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import { createLog } from '../../../log/log.js'
import { agentTarget } from '../../../provider/amphora/agent/agent.js'
import { SshAgentConnections } from '../../../provider/amphora/agent/connection.js'
import { keyFiles, loadKeys } from '../../state-directory/keys.js'
import type { Instance } from '../../wiring/instance.js'

const LIMITS = { timeoutMs: 10_000, connectTimeoutMs: 5_000 }

/** Requests to agents, with the controller's SSH key. */
export type Agents = {
  status: (amphoraId: string, address: string) => Promise<ResultOf['status'] & Pick<ResultOf['hello'], 'holdsVip'>>
  logs: (amphoraId: string, address: string, lines: number) => Promise<string[]>
}

/** Runs `work` with connections to agents, then closes them. */
export async function withAgents<T>({ config, directory }: Instance, work: (agents: Agents) => Promise<T>): Promise<T> {
  const keys = await loadKeys(keyFiles(config, directory))
  const connections = new SshAgentConnections({
    controllerKey: keys.controllerSsh.privateKey,
    log: createLog('krater', 'warn'),
  })
  const target = (amphoraId: string, address: string) => agentTarget(keys.amphoraMaster, amphoraId, address)
  try {
    return await work({
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
  } finally {
    await connections.stop()
  }
}
