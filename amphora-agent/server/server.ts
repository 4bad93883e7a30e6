import { existsSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import type { Log } from '../log/log.js'
import { createFrameDecoder, encodeFrame } from '../protocol/frames.js'
import { AGENT_SOCKET, type Answer, AnswerError, type Request, requestSchema } from '../protocol/messages.js'
import { openToController } from './group.js'

/** Answers one request. @throws AnswerError for a known fault; any other error is answered as internal */
export type Handler = (request: Request) => Promise<Extract<Answer, { ok: true }>['result']>

export type AgentServer = {
  /** Listens again if the socket file was removed. @returns whether it was */
  restore: () => Promise<boolean>
  close: () => Promise<void>
}

/**
 * Listens on the agent's socket. Requests run concurrently, also those of one connection; each is answered when
 * done.
 */
export async function serve(handle: Handler, log: Log): Promise<AgentServer> {
  const connections = new Set<Socket>()
  const welcome = (socket: Socket) => {
    connections.add(socket)
    socket.on('close', () => connections.delete(socket))
    socket.on('error', () => {})
    const decode = createFrameDecoder()
    socket.on('data', (piece: Buffer) => {
      try {
        for (const value of decode(piece)) void answer(value, handle, log).then(reply => write(socket, reply))
      } catch (error) {
        log.warn(`connection closed: ${error instanceof Error ? error.message : String(error)}`)
        socket.destroy()
      }
    })
  }
  let server = createServer(welcome)
  rmSync(AGENT_SOCKET, { force: true })
  await listen(server)
  return {
    restore: async () => {
      if (existsSync(AGENT_SOCKET)) return false
      // Close the old server first: closing removes the path that it listened on.
      server.close()
      server = createServer(welcome)
      await listen(server)
      return true
    },
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        for (const socket of connections) socket.destroy()
      }),
  }
}

function listen(server: Server): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    // Keep others from connecting between the socket's creation and the chmod.
    const before = process.umask(0o177)
    server.listen(AGENT_SOCKET, () => {
      process.umask(before)
      openToController(AGENT_SOCKET)
      resolve()
    })
  })
}

async function answer(value: unknown, handle: Handler, log: Log): Promise<Answer> {
  const parsed = requestSchema.safeParse(value)
  if (!parsed.success) {
    const issues = parsed.error.issues.slice(0, 20).map(({ path, message }) => `${path.join('.')}: ${message}`)
    return {
      id: idOf(value),
      ok: false,
      error: {
        code: 'malformed',
        message: 'malformed request',
        details: issues.join('\n').slice(0, 4_000),
      },
    }
  }
  const { id } = parsed.data
  try {
    return { id, ok: true, result: await handle(parsed.data) }
  } catch (error) {
    if (error instanceof AnswerError) return { id, ok: false, error: error.answer }
    const message = error instanceof Error ? error.message : String(error)
    log.error(`${parsed.data.verb} failed: ${error instanceof Error ? error.stack : message}`)
    return { id, ok: false, error: { code: 'internal', message, details: '' } }
  }
}

function idOf(value: unknown): number {
  const id = typeof value === 'object' && value !== null && 'id' in value ? value.id : null
  return typeof id === 'number' && Number.isSafeInteger(id) ? id : 0
}

function write(socket: Socket, reply: Answer): void {
  if (socket.writable) socket.write(encodeFrame(reply))
}
