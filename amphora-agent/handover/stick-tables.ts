import { once } from 'node:events'
import { createConnection, createServer, type Server, type Socket, type TcpNetConnectOpts } from 'node:net'
import { pipeline } from 'node:stream'
import type { Log } from '../log/log.js'
import type { Desired } from '../protocol/desired.js'
import type { Handover, TablesTaken } from '../protocol/handover.js'
import { HAPROXY_PEERS_PORT } from '../protocol/paths.js'
import { waitFor } from '../time/wait.js'
import { CONFIRMED, helloOf, STILL_THERE, TAUGHT_ALL, TEACH_ALL, WELCOME, wholeMessages } from './peer-messages.js'
import { TABLES_PORT } from './plan-handover.js'

/** A hundred thousand entries need a fraction of this; the VIP waits no longer. */
const LIMIT_MS = 10_000
const ANSWER_MS = 2_000
const RETRY_MS = 100
/** HAProxy tells a peer of its own name what has changed when that says something. */
const PROMPT_MS = 50

export type StickTables = {
  /** Lets the other amphora speak with this one's HAProxy. May be repeated. @throws Error when the port cannot be had */
  offer: (handover: Handover) => Promise<void>
  /** Takes all entries of the other one's stick tables, and from then on those that change. */
  take: (handover: Handover) => Promise<TablesTaken>
  /** Ends what is under way: a worker that is about to be an old one hands its own tables over, under the same name. */
  interrupt: () => void
  end: () => void
}

/**
 * Gives the stick tables of an amphora that leaves to the one that takes over, before the VIP moves. Either HAProxy is addressed by its own name, as
 * by a worker of its own before or after a reload: so neither has to be told of the other, which would take a reload of both. The agents
 * carry the messages; the one that takes over asks.
 * @param amphoraId by which HAProxy finds itself among its peers
 */
export function createStickTables(amphoraId: string, desired: () => Desired | null, log: Log): StickTables {
  const open = new Set<Socket>()
  let server: Server | null = null
  /** An attempt of an earlier round is over, whatever comes of it. */
  let round = 0

  const keep = (socket: Socket): Socket => {
    open.add(socket)
    socket.on('close', () => open.delete(socket))
    socket.on('error', error => log.info(`handover: stick tables: ${error.message}`))
    return socket
  }
  const closeAll = () => {
    for (const socket of open) socket.destroy()
  }
  const end = () => {
    round += 1
    server?.close()
    server = null
    closeAll()
  }
  const connect = async (options: TcpNetConnectOpts): Promise<Socket> => {
    const socket = keep(createConnection(options))
    await once(socket, 'connect', { signal: AbortSignal.timeout(ANSWER_MS) })
    return socket
  }
  /** @throws Error also while HAProxy hears its former worker */
  const connectHaproxy = async (): Promise<Socket> => {
    const socket = await connect({ host: desired()?.pair?.address ?? '127.0.0.1', port: HAPROXY_PEERS_PORT })
    socket.write(helloOf(amphoraId))
    const answer = await read(socket, WELCOME.length)
    if (answer !== WELCOME) throw new Error(`HAProxy answers its peer with ${answer.trim()}`)
    return socket
  }

  const welcome = async (other: Socket) => {
    keep(other)
    try {
      const own = await connectHaproxy()
      pipeline(other, own, () => {})
      pipeline(own, other, () => {})
    } catch (error) {
      log.info(`handover: stick tables: ${String(error)}`)
      other.destroy()
    }
  }

  /** @returns whether HAProxy has stored all entries by then */
  const takeUntil = async ({ own: localAddress, peer: host }: Handover, until: number): Promise<boolean> => {
    const other = await connect({ host, localAddress, port: TABLES_PORT })
    const own = await connectHaproxy()
    const prompt = setInterval(() => {
      if (other.destroyed) clearInterval(prompt)
      for (const socket of [own, other]) if (socket.writable) socket.write(STILL_THERE)
    }, PROMPT_MS)
    other.write(Buffer.concat([TAUGHT_ALL, TEACH_ALL]))
    return new Promise(resolve => {
      const answers = wholeMessages(head => head.equals(CONFIRMED) && resolve(true))
      pipeline(other, wholeMessages(), own, () => resolve(false))
      pipeline(own, answers, other, () => resolve(false))
      setTimeout(() => resolve(false), until - performance.now()).unref()
    })
  }

  return {
    offer: async ({ own }) => {
      if (server !== null) return
      const opened = createServer(socket => void welcome(socket))
      opened.listen(TABLES_PORT, own)
      await once(opened, 'listening')
      opened.on('error', error => log.error(`handover: stick tables: ${error.message}`))
      server = opened
    },
    take: async handover => {
      end()
      const own = round
      if (!hasStickTables(desired())) return 'none'
      const until = performance.now() + LIMIT_MS
      const attempt = async (): Promise<TablesTaken | null> => {
        try {
          if (await takeUntil(handover, until)) return 'all'
        } catch (error) {
          log.info(`handover: stick tables: ${String(error)}`)
        }
        if (own !== round) return 'missing'
        closeAll()
        return null
      }
      return (await waitFor(attempt, { timeoutMs: LIMIT_MS, everyMs: RETRY_MS })) ?? 'missing'
    },
    interrupt: closeAll,
    end,
  }
}

const hasStickTables = (desired: Desired | null): boolean => /^peers /m.test(desired?.haproxy?.text ?? '')

async function read(socket: Socket, size: number): Promise<string> {
  const signal = AbortSignal.timeout(ANSWER_MS)
  for (;;) {
    const piece: Buffer | null = socket.read(size)
    if (piece !== null) return piece.toString('latin1')
    await once(socket, 'readable', { signal })
  }
}
