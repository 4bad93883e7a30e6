import type { AddressInfo } from 'node:net'
import ssh2, { type ServerChannel } from 'ssh2'
import { createFrameDecoder, encodeFrame } from '../../../amphora-agent/protocol/frames.js'
import type { Request } from '../../../amphora-agent/protocol/messages.js'
import { amphoraIdentity } from '../../../controller/compute/amphora-identity.js'
import { type AgentUnreachable, SshAgentConnections } from '../../../controller/provider/amphora/agent/connection.js'
import { newSshKeyPair } from '../inputs/ssh-keys.js'
import { quiet } from '../worlds/machines.js'

type Test = { teardown: (task: () => unknown) => void }

export const AMPHORA = '4c6d3c1e-2f0b-4a57-8f5a-0d6c4f8f3f10'
const identity = amphoraIdentity(Buffer.alloc(32, 3), AMPHORA)
export const HOST_KEY = identity.sshHostKeyPublic
const controller = newSshKeyPair()

export const HELLO = {
  agentVersion: '1',
  protocolVersion: 1,
  bootId: 'b',
  haproxyVersion: '2.6.12',
  keepalivedVersion: '2.2.7',
  appliedGeneration: 0,
  appliedSha256: null,
  drain: null,
}
export const hello = { verb: 'hello' } as const

type Agent = (request: Request, channel: ServerChannel, connection: number) => void

export const answerHello: Agent = ({ id }, channel) => channel.write(encodeFrame({ id, ok: true, result: HELLO }))

/**
 * An SSH server in this process that looks like an amphora and misbehaves as configured.
 * @param options.acceptsSocket whether it opens a stream; may never say
 */
export async function createAmphora(
  t: Test,
  agent: Agent = answerHello,
  options: { hostKey?: string; acceptsSocket?: (path: string) => boolean | Promise<boolean> } = {},
) {
  const { hostKey = identity.sshHostKeyPrivate, acceptsSocket = () => true } = options
  const allowed = ssh2.utils.parseKey(controller.public)
  if (allowed instanceof Error) throw allowed
  const seen = { connections: 0, logins: 0, open: 0, streams: 0, sockets: [] as string[] }
  const clients = new Set<ssh2.Connection>()
  const server = new ssh2.Server({ hostKeys: [hostKey] }, client => {
    const number = ++seen.connections
    seen.open++
    clients.add(client)
    client.on('error', () => undefined)
    client.on('close', () => {
      seen.open--
      clients.delete(client)
    })
    client.on('authentication', context => {
      const known = context.method === 'publickey' && context.key.data.equals(allowed.getPublicSSH())
      if (!known || context.username !== 'krater') return context.reject()
      if (context.signature) seen.logins++
      context.accept()
    })
    client.on('openssh.streamlocal', (accept, reject, { socketPath }) => {
      seen.sockets.push(socketPath)
      const open = () => {
        const channel = accept()
        const decode = createFrameDecoder()
        seen.streams++
        channel.on('close', () => seen.streams--)
        channel.on('error', () => undefined)
        channel.on('data', (piece: Buffer) => {
          for (const value of decode(piece)) agent(value as Request, channel, number)
        })
      }
      void Promise.resolve(acceptsSocket(socketPath)).then(accepts => (accepts ? open() : reject()))
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const hangUp = () => {
    for (const client of clients) client.end()
  }
  t.teardown(async () => {
    hangUp()
    await new Promise(resolve => server.close(resolve))
  })
  const { port } = server.address() as AddressInfo
  return { seen, hangUp, target: { amphoraId: AMPHORA, host: '127.0.0.1', port, hostKey: HOST_KEY } }
}

export function createConnections(t: Test, options: { idleMs?: number; controllerKey?: string } = {}) {
  const connections = new SshAgentConnections({ controllerKey: controller.private, log: quiet, ...options })
  t.teardown(() => connections.stop())
  return connections
}

export const unreachable = (reason: AgentUnreachable['reason'], message: RegExp = /./) => ({
  name: 'AgentUnreachable',
  amphoraId: AMPHORA,
  reason,
  message,
})
