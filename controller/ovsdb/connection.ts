import { connect as connectTcp, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { formatOvsdbAddress, type OvsdbAddress } from './address.js'
import { MethodRefused, OvsdbBusy, OvsdbProtocolError, OvsdbUnreachable } from './errors.js'
import { createFrameReader, MAX_MESSAGE } from './frames.js'
import { parseMessage } from './messages.js'
import { tlsRefusal } from './tls-refusal.js'

/** PEM. The server is any that the authority vouches for: certificates of OVSDB servers name no host. */
export type OvsdbTls = { ca: string; certificate: string; key: string }

export type ConnectionOptions = {
  tls?: OvsdbTls | undefined
  onNotification: (method: string, params: readonly unknown[]) => void
  limits?: Partial<ConnectionLimits>
}

export type ConnectionLimits = {
  connectMs: number
  /** After so long without a byte the server is asked for a sign of life, and given up after the same time again. */
  silenceMs: number
  /** Requests without an answer yet. */
  maxRequests: number
  /** Bytes that wait to be sent. */
  maxWaiting: number
  maxMessage: number
}

const LIMITS: ConnectionLimits = {
  connectMs: 3_000,
  silenceMs: 5_000,
  maxRequests: 1_000,
  maxWaiting: 64 * 1024 * 1024,
  maxMessage: MAX_MESSAGE,
}

/** A JSON-RPC connection to an OVSDB server. */
export type OvsdbConnection = {
  address: OvsdbAddress
  /** @throws MethodRefused, OvsdbBusy, OvsdbUnreachable; the last also after `limitMs` without an answer */
  request: (method: string, params: readonly unknown[], limitMs?: number) => Promise<unknown>
  /** Resolves with the reason when the connection is over. */
  ended: Promise<Error>
  close: (reason?: Error) => void
}

type Pending = { method: string; resolve: (result: unknown) => void; reject: (error: unknown) => void }

const ANSWER_LIMIT_MS = 15_000

/** @throws OvsdbUnreachable */
export async function openOvsdbConnection(
  address: OvsdbAddress,
  { tls, onNotification, limits = {} }: ConnectionOptions,
): Promise<OvsdbConnection> {
  const { connectMs, silenceMs, maxRequests, maxWaiting, maxMessage } = { ...LIMITS, ...limits }
  const name = formatOvsdbAddress(address)
  const socket = await connected(address, tls, connectMs)
  const pending = new Map<number, Pending>()
  let end: (reason: Error) => void = () => undefined
  const ended = new Promise<Error>(resolve => {
    end = resolve
  })
  let failure: Error | null = null
  let lastId = 0
  let heardAt = performance.now()

  const close = (reason: Error = new OvsdbUnreachable(`The connection to ${name} is closed.`)): void => {
    if (failure !== null) return
    failure = reason
    clearInterval(watch)
    socket.destroy()
    for (const { reject } of [...pending.values()]) reject(reason)
    end(reason)
  }
  const send = (message: object): void => {
    if (socket.writableLength > maxWaiting) throw new OvsdbBusy(`${name} takes nothing more: ${maxWaiting} bytes wait.`)
    socket.write(JSON.stringify(message))
  }
  const request: OvsdbConnection['request'] = (method, params, limitMs = ANSWER_LIMIT_MS) =>
    new Promise((resolve, reject) => {
      if (failure !== null) return reject(failure)
      if (pending.size >= maxRequests) return reject(new OvsdbBusy(`${name} owes ${pending.size} answers already.`))
      const id = ++lastId
      const settled =
        <T>(settle: (outcome: T) => void) =>
        (outcome: T) => {
          clearTimeout(limit)
          pending.delete(id)
          settle(outcome)
        }
      const one: Pending = { method, resolve: settled(resolve), reject: settled(reject) }
      const limit = setTimeout(
        () => one.reject(new OvsdbUnreachable(`${name} does not answer ${method} within ${limitMs} ms.`)),
        limitMs,
      )
      pending.set(id, one)
      try {
        send({ method, params, id })
      } catch (error) {
        one.reject(error)
      }
    })
  const take = (text: string): void => {
    const message = parseMessage(text)
    if (message.kind === 'notification') {
      onNotification(message.method, message.params)
    } else if (message.kind === 'request') {
      const isEcho = message.method === 'echo'
      send({ id: message.id, result: isEcho ? message.params : null, error: isEcho ? null : 'unknown method' })
    } else {
      // One that was given up has nobody who waits for it.
      const asked = pending.get(message.id)
      if (message.kind === 'answer') asked?.resolve(message.result)
      else asked?.reject(new MethodRefused(asked.method, message.code, message.details))
    }
  }

  const read = createFrameReader(maxMessage)
  socket.on('data', (piece: Buffer) => {
    heardAt = performance.now()
    try {
      for (const text of read(piece)) if (failure === null) take(text)
    } catch (error) {
      close(error instanceof Error ? error : new OvsdbProtocolError(String(error)))
    }
  })
  socket.on('error', error => close(new OvsdbUnreachable(`${name} cannot be reached: ${wordsOf(error)}`)))
  socket.on('close', () => close(new OvsdbUnreachable(`${name} has closed the connection.`)))
  // A server does one thing after the other: it says nothing while it works on something large.
  const isAtWork = () => [...pending.values()].some(({ method }) => method !== 'echo')
  const watch = setInterval(() => {
    const silence = performance.now() - heardAt
    const limit = isAtWork() ? Math.max(2 * silenceMs, ANSWER_LIMIT_MS) : 2 * silenceMs
    if (silence > limit) close(new OvsdbUnreachable(`${name} has been silent for ${Math.round(silence)} ms.`))
    else if (silence > silenceMs) request('echo', [], silenceMs).catch(() => undefined)
  }, silenceMs / 2)
  return { address, request, ended, close }
}

const wordsOf = (error: NodeJS.ErrnoException): string => tlsRefusal(error.code, error.message) ?? error.message

/** @throws OvsdbUnreachable */
function connected(address: OvsdbAddress, tls: OvsdbTls | undefined, limitMs: number): Promise<Socket> {
  const name = formatOvsdbAddress(address)
  return new Promise((resolve, reject) => {
    const fail = (why: string) => {
      socket.destroy()
      reject(new OvsdbUnreachable(`${name} cannot be reached: ${why}`))
    }
    const socket = start(address, tls)
    const limit = setTimeout(() => fail(`no answer within ${limitMs} ms`), limitMs)
    const onError = (error: Error) => {
      clearTimeout(limit)
      fail(wordsOf(error))
    }
    socket.once('error', onError)
    socket.once(address.kind === 'ssl' ? 'secureConnect' : 'connect', () => {
      clearTimeout(limit)
      socket.off('error', onError)
      resolve(socket)
    })
  })
}

function start(address: OvsdbAddress, tls: OvsdbTls | undefined): Socket {
  if (address.kind === 'unix') return connectTcp({ path: address.path })
  const { host, port } = address
  if (address.kind === 'tcp') return connectTcp({ host, port, noDelay: true })
  return connectTls({
    ...{ host, port, ca: tls?.ca, cert: tls?.certificate, key: tls?.key },
    checkServerIdentity: () => undefined,
  }).setNoDelay(true)
}
