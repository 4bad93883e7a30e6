import { timingSafeEqual } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { setTimeout as wait } from 'node:timers/promises'
import ssh2, { type Client } from 'ssh2'
import { AGENT_SOCKET } from '../../../../amphora-agent/protocol/messages.js'
import { AgentUnreachable } from './errors.js'

export type AgentTarget = {
  amphoraId: string
  /** Address of the amphora on the management network. */
  host: string
  port?: number
  /** The host key that the amphora must present, in SSH wire format. There is no trust on first use. */
  hostKey: Buffer
}

export type AgentChannel = {
  stream: Duplex
  /** Opens another stream, to another of the agent's sockets. @throws AgentUnreachable, within `timeoutMs` */
  open: (path: string, timeoutMs: number) => Promise<Duplex>
  close: () => void
  closed: Promise<void>
}

/** The only account that accepts the controller's key; see the machine's sshd_config. */
const USER = 'krater'
const RETRY_MS = 100
/** How long to retry after a refusal, since a machine may have just started. */
const REFUSAL_LIMIT_MS = 3_000
/** Streams of a connection that a machine may leave unanswered before no more are opened: each takes memory. */
const MAX_UNANSWERED = 16

/**
 * Connects to an amphora over SSH and opens a channel to its agent's socket. Retries briefly after a refusal: the SSH
 * server of a machine that has just started is up before its agent.
 * @throws AgentUnreachable, within `connectTimeoutMs`
 */
export async function openAgentChannel(
  target: AgentTarget,
  options: { controllerKey: string; connectTimeoutMs: number; signal: AbortSignal },
): Promise<AgentChannel> {
  const { signal, connectTimeoutMs } = options
  const start = performance.now()
  const left = () => Math.max(1, start + connectTimeoutMs - performance.now())
  const retryUntil = start + Math.min(REFUSAL_LIMIT_MS, connectTimeoutMs)
  let client: Client | null = null
  let refusal: AgentUnreachable | null = null
  for (;;) {
    try {
      client ??= await connectClient(target, options.controllerKey, left(), signal)
      const channel = await openChannel(client, target, left(), signal)
      if (channel !== null) return channel
      refusal = agentNotRunning(target)
    } catch (error) {
      client = null
      if (!(error instanceof AgentUnreachable) || error.reason === 'stopped') throw error
      // Report the last refusal rather than the timeout that followed it.
      if (error.reason !== 'refused') throw error.reason === 'no-answer' ? (refusal ?? error) : error
      refusal = error
    }
    if (performance.now() + RETRY_MS > retryUntil) {
      client?.destroy()
      throw refusal
    }
    await wait(RETRY_MS)
  }
}

function connectClient(
  target: AgentTarget,
  controllerKey: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Client> {
  return new Promise((resolve, reject) => {
    const client = new ssh2.Client()
    let wrongKey = false
    const fail = (error: AgentUnreachable) => {
      clearTimeout(timer)
      signal.removeEventListener('abort', abort)
      client.destroy()
      reject(error)
    }
    const abort = () => fail(stopped(target))
    const timer = setTimeout(() => fail(timedOut(target, timeoutMs)), timeoutMs)
    client.on('error', error => fail(wrongKey ? wrongHostKey(target) : connectFailure(target, error)))
    client.once('close', () => fail(closedEarly(target)))
    // Nagle's algorithm would add 40 ms to every small request.
    client.once('connect', () => client.setNoDelay(true))
    client.once('ready', () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', abort)
      client.removeAllListeners('error').removeAllListeners('close')
      client.on('error', () => undefined)
      resolve(client)
    })
    if (signal.aborted) return abort()
    signal.addEventListener('abort', abort)
    client.connect({
      host: target.host,
      port: target.port ?? 22,
      username: USER,
      privateKey: controllerKey,
      authHandler: ['publickey'],
      readyTimeout: 0,
      keepaliveInterval: 5_000,
      keepaliveCountMax: 2,
      strictVendor: false,
      algorithms: {
        serverHostKey: ['ssh-ed25519'],
        kex: ['curve25519-sha256', 'curve25519-sha256@libssh.org'],
        cipher: ['aes128-gcm@openssh.com'],
      },
      hostVerifier: (key: Buffer) => {
        wrongKey = key.length !== target.hostKey.length || !timingSafeEqual(key, target.hostKey)
        return !wrongKey
      },
    })
  })
}

/**
 * @returns null if the agent's socket cannot be opened; the connection stays usable
 * @throws AgentUnreachable, after closing the connection
 */
async function openChannel(
  client: Client,
  target: AgentTarget,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<AgentChannel | null> {
  try {
    const stream = await openStream(client, target, AGENT_SOCKET, { timeoutMs, signal })
    if (stream === null) return null
    // Registered only now: a connection survives refused channels and would accumulate listeners.
    const closed = new Promise<void>(done => client.once('close', () => done()))
    return { stream, open: openOthers(client, target, signal), close: () => client.destroy(), closed }
  } catch (error) {
    client.destroy()
    throw error
  }
}

function openOthers(client: Client, target: AgentTarget, signal: AbortSignal): AgentChannel['open'] {
  let unanswered = 0
  const answered = () => {
    unanswered -= 1
  }
  return async (path, timeoutMs) => {
    if (unanswered >= MAX_UNANSWERED) throw unansweredStreams(target)
    unanswered += 1
    const stream = await openStream(client, target, path, { timeoutMs, signal, answered })
    if (stream === null) throw streamRefused(target, path)
    return stream
  }
}

/**
 * @param answered called once the machine has answered, which may be after the time limit
 * @returns null if the machine refuses
 * @throws AgentUnreachable; the connection stays open
 */
function openStream(
  client: Client,
  target: AgentTarget,
  path: string,
  { timeoutMs, signal, answered }: { timeoutMs: number; signal: AbortSignal; answered?: () => void },
): Promise<Duplex | null> {
  const { amphoraId, host } = target
  return new Promise((resolve, reject) => {
    let isAwaited = true
    const cleanUp = () => {
      isAwaited = false
      clearTimeout(timer)
      signal.removeEventListener('abort', abort)
      client.removeListener('close', onClose)
    }
    const fail = (error: AgentUnreachable) => {
      cleanUp()
      reject(error)
    }
    const abort = () => fail(stopped(target))
    const onClose = () => fail(closedEarly(target))
    const late = `${host} opened no stream to ${path} within ${(timeoutMs / 1000).toFixed(1)} s.`
    const timer = setTimeout(() => fail(new AgentUnreachable(amphoraId, 'no-answer', late)), timeoutMs)
    if (signal.aborted) return abort()
    signal.addEventListener('abort', abort)
    client.once('close', onClose)
    try {
      client.openssh_forwardOutStreamLocal(path, (error, stream) => {
        answered?.()
        if (isAwaited) {
          cleanUp()
          resolve(error ? null : stream)
        } else if (!error) stream.destroy()
      })
    } catch {
      // ssh2 throws if the connection has already broken.
      onClose()
    }
  })
}

function connectFailure({ amphoraId, host }: AgentTarget, error: Error & { level?: string }): AgentUnreachable {
  const code = 'code' in error ? error.code : undefined
  if (error.level === 'client-authentication') {
    return new AgentUnreachable(amphoraId, 'authentication', `${host} does not accept the controller's SSH key.`)
  }
  if (code === 'ECONNREFUSED' || code === 'ECONNRESET' || code === 'EPIPE') {
    return new AgentUnreachable(amphoraId, 'refused', `${host} refuses SSH connections.`)
  }
  if (code === 'EHOSTUNREACH' || code === 'ENETUNREACH' || code === 'ETIMEDOUT') {
    return new AgentUnreachable(amphoraId, 'no-answer', `${host} is unreachable on the management network.`)
  }
  return new AgentUnreachable(amphoraId, 'connection-lost', `The SSH connection to ${host} failed: ${error.message}`)
}

const wrongHostKey = ({ amphoraId, host }: AgentTarget) =>
  new AgentUnreachable(amphoraId, 'wrong-host-key', `${host} presented a host key that is not this amphora's.`)

const timedOut = ({ amphoraId, host }: AgentTarget, timeoutMs: number) =>
  new AgentUnreachable(
    amphoraId,
    'no-answer',
    `No SSH connection to ${host} within ${(timeoutMs / 1000).toFixed(1)} s.`,
  )

const closedEarly = ({ amphoraId, host }: AgentTarget) =>
  new AgentUnreachable(amphoraId, 'refused', `${host} closed the SSH connection during setup.`)

const agentNotRunning = ({ amphoraId, host }: AgentTarget) =>
  new AgentUnreachable(amphoraId, 'refused', `The agent on ${host} is not running.`)

const streamRefused = ({ amphoraId, host }: AgentTarget, path: string) =>
  new AgentUnreachable(amphoraId, 'refused', `${host} refuses a stream to ${path}.`)

const unansweredStreams = ({ amphoraId, host }: AgentTarget) =>
  new AgentUnreachable(amphoraId, 'no-answer', `${host} leaves ${MAX_UNANSWERED} streams unanswered.`)

const stopped = ({ amphoraId, host }: AgentTarget) =>
  new AgentUnreachable(amphoraId, 'stopped', `The controller abandoned the connection to ${host}.`)
