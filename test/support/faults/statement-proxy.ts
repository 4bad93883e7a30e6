import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endTogether } from '../socket-pair.js'

/**
 * A statement, on one line, on its way through the proxy: `asked` before PostgreSQL gets it, `answered` before
 * the client gets the result.
 */
export type Passing = { sql: string; at: 'asked' | 'answered' }

export type StatementProxy = {
  /** The same database, reached through the proxy. */
  url: string
  /** Called for every statement at both ends of its way; the statement continues when this resolves. */
  watch: (onPassing: (passing: Passing) => Promise<void> | void) => void
  stop: () => Promise<void>
}

/** A proxy between a client and PostgreSQL's Unix socket, which lets a test stop at each single statement. */
export async function startStatementProxy(databaseUrl: string): Promise<StatementProxy> {
  const target = join(decodeURIComponent(databaseUrl.split('host=')[1] ?? ''), '.s.PGSQL.5432')
  const directory = await mkdtemp(join(tmpdir(), 'krater-statements-'))
  const sockets = new Set<Socket>()
  let onPassing: (passing: Passing) => Promise<void> | void = () => {}
  const server = createServer(client => {
    const upstream = connect(target)
    pass(client, upstream, passing => onPassing(passing))
    endTogether(client, upstream, sockets)
  })
  await new Promise<void>(resolve => server.listen(join(directory, '.s.PGSQL.5432'), resolve))
  return {
    url: databaseUrl.replace(/host=.*$/, `host=${encodeURIComponent(directory)}`),
    watch: next => {
      onPassing = next
    },
    stop: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise<void>(resolve => server.close(() => resolve()))
      await rm(directory, { recursive: true, force: true })
    },
  }
}

type Frame = { type: string; bytes: Buffer }

/** Messages of PostgreSQL's protocol in order, each handled completely before the next. */
function inFrames(socket: Socket, hasStartup: boolean, handle: (frame: Frame) => Promise<void>): void {
  let rest = Buffer.alloc(0)
  let isStarted = !hasStartup
  let turn = Promise.resolve()
  socket.on('data', data => {
    rest = Buffer.concat([rest, data])
    for (;;) {
      const head = isStarted ? 1 : 0
      if (rest.length < head + 4) return
      const length = head + rest.readInt32BE(head)
      if (rest.length < length) return
      const frame = { type: isStarted ? String.fromCharCode(rest[0] ?? 0) : '', bytes: rest.subarray(0, length) }
      rest = rest.subarray(length)
      isStarted = true
      turn = turn.then(() => handle(frame))
    }
  })
}

const oneLine = (sql: string): string => sql.trim().replace(/\s+/g, ' ')

const textAt = (bytes: Buffer, start: number): string => bytes.subarray(start, bytes.indexOf(0, start)).toString()

function pass(client: Socket, upstream: Socket, tell: (passing: Passing) => Promise<void> | void): void {
  const prepared = new Map<string, string>()
  const underWay: string[] = []
  let sql: string | null = null
  const held: Buffer[] = []

  inFrames(client, true, async ({ type, bytes }) => {
    if (type === 'P') prepared.set(textAt(bytes, 5), textAt(bytes, 5 + textAt(bytes, 5).length + 1))
    if (type === 'B') sql = prepared.get(textAt(bytes, 5 + textAt(bytes, 5).length + 1)) ?? ''
    if (type === 'Q') sql = textAt(bytes, 5)
    if ((type === 'Q' || type === 'S') && sql !== null) {
      underWay.push(sql)
      await tell({ sql: oneLine(sql), at: 'asked' })
      sql = null
    }
    upstream.write(bytes)
  })
  // PostgreSQL's messages about a statement are held back until all are there, so that either all or nothing
  // reaches the client.
  inFrames(upstream, false, async ({ type, bytes }) => {
    held.push(bytes)
    const isOver = type === 'Z'
    const done = isOver ? underWay.shift() : undefined
    if (done !== undefined) await tell({ sql: oneLine(done), at: 'answered' })
    if (isOver || underWay.length === 0) client.write(Buffer.concat(held.splice(0)))
  })
}
