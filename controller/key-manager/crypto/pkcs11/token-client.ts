import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { CannotOpen, CryptoMisconfigured, CryptoUnavailable } from '../backend.js'
import type { FromTokenProcess, TokenCall, TokenFault, TokenResult, TokenSettings, ToTokenProcess } from './calls.js'

/** Time for a Node process to start and for the library to find its token. */
const START_LIMIT_MS = 20_000
/** How long calls fail immediately after a failure that reloading the library did not fix. */
const PAUSE_MS = 1000

export type TokenClientOptions = {
  settings: TokenSettings
  /** Time limit of one call, counted from when the token starts it. */
  callMilliseconds: number
  /** Maximum number of waiting calls. */
  queueLimit: number
  /** Script of the token process; by default the one next to the bundle. */
  program?: string
}

/**
 * Sends calls to the token process. Starts it when needed, and again when it hangs or crashes, or when its
 * library fails.
 */
export type TokenClient = {
  /** @throws CryptoUnavailable, CryptoMisconfigured, CannotOpen */
  ask: (call: TokenCall) => Promise<TokenResult>
  /** Does not wait for a result; does nothing if no process runs. */
  tell: (call: TokenCall) => void
  stop: () => Promise<void>
}

/** The process must be replaced. */
class Broken extends Error {}

/** The master key is absent. A library that temporarily lost its token reports the same. */
class Absent extends Broken {}

export function createTokenClient(options: TokenClientOptions): TokenClient {
  const { queueLimit } = options
  const { attempt, tell, stop } = createProcessKeeper(options)
  let waiting = 0
  let refusal: CryptoMisconfigured | null = null
  let pause: { until: number; reason: string } | null = null

  const ask = async (call: TokenCall): Promise<TokenResult> => {
    if (refusal !== null) throw refusal
    if (pause !== null && performance.now() < pause.until) throw new CryptoUnavailable(pause.reason)
    if (waiting >= queueLimit)
      throw new CryptoUnavailable(`${queueLimit} calls (queue_limit) already wait for the token.`)
    waiting++
    try {
      return await attempt(call).catch(error => {
        if (error instanceof Broken) return attempt(call)
        throw error
      })
    } catch (error) {
      if (error instanceof CryptoMisconfigured) refusal = error
      if (!(error instanceof Broken)) throw error
      if (!(error instanceof Absent)) pause = { until: performance.now() + PAUSE_MS, reason: error.message }
      throw new CryptoUnavailable(error.message)
    } finally {
      waiting--
    }
  }
  return { ask, tell, stop }
}

type ProcessKeeper = {
  /** @throws Broken after discarding the process, which the next attempt replaces */
  attempt: (call: TokenCall) => Promise<TokenResult>
  tell: (call: TokenCall) => void
  stop: () => Promise<void>
}

/** Keeps at most one token process. */
function createProcessKeeper(options: TokenClientOptions): ProcessKeeper {
  let current: Promise<Running> | null = null
  let startedAt = 0

  const attempt = async (call: TokenCall): Promise<TokenResult> => {
    if (current === null) startedAt = performance.now()
    const used = current ?? startProcess(options)
    current = used
    try {
      return await (await used).ask(call)
    } catch (error) {
      // If many calls fail at once, the first discards the process and the others find a new one.
      const isFresh = error instanceof Absent && performance.now() - startedAt < PAUSE_MS
      if (error instanceof Broken && !isFresh && current === used) {
        current = null
        await endProcess(used, error.message)
      }
      throw error
    }
  }
  return {
    attempt,
    tell: call => {
      current?.then(running => running.ask(call)).catch(() => undefined)
    },
    stop: async () => {
      const last = current
      current = null
      if (last !== null) await endProcess(last, 'The token process was stopped.')
    },
  }
}

const endProcess = (process: Promise<Running>, reason: string): Promise<void> =>
  process.then(
    running => running.end(reason),
    () => undefined,
  )

type Running = {
  ask: (call: TokenCall) => Promise<TokenResult>
  end: (reason: string) => Promise<void>
}

const defaultProgram = fileURLToPath(new URL('token-process.js', import.meta.url))

function startProcess({ settings, callMilliseconds, program = defaultProgram }: TokenClientOptions): Promise<Running> {
  const child = fork(program, [], {
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: [],
    cwd: '/',
  })
  const exited = new Promise<void>(resolve => child.once('exit', () => resolve()))
  const { ask, answer, post, breakDown, brokenBy } = createCallChannel(child, callMilliseconds)
  const end = async (reason: string): Promise<void> => {
    breakDown(reason)
    await exited
  }

  return new Promise((resolve, reject) => {
    const startTimer = setTimeout(
      () => breakDown(`The PKCS#11 library did not start within ${START_LIMIT_MS / 1000} s.`),
      START_LIMIT_MS,
    )
    const fail = (error: Error): void => {
      clearTimeout(startTimer)
      breakDown(error.message)
      reject(error)
    }
    child.on('error', error => fail(new Broken(`The token process failed: ${error.message}.`)))
    child.once('exit', (code, signal) => {
      fail(new Broken(brokenBy() ?? `The token process exited (${signal ?? `status ${code}`}).`))
    })
    child.on('message', (message: FromTokenProcess) => {
      if ('started' in message) {
        clearTimeout(startTimer)
        if (!message.started) {
          fail(errorOf(message.fault))
          return
        }
        holdOpen(child, false)
        resolve({ ask, end })
      } else if ('result' in message) answer(message.id, ({ resolve: give }) => give(message.result))
      else answer(message.id, ({ reject: refuse }) => refuse(errorOf(message.fault)))
    })
    post({ start: settings })
  })
}

type Waiter = { resolve: (result: TokenResult) => void; reject: (error: Error) => void }

type CallChannel = {
  ask: (call: TokenCall) => Promise<TokenResult>
  answer: (id: number, settle: (waiter: Waiter) => void) => void
  post: (message: ToTokenProcess) => void
  /** Kills the process and rejects all calls, waiting and future. */
  breakDown: (reason: string) => void
  /** The reason passed to the first `breakDown`; null before. */
  brokenBy: () => string | null
}

/** Sends calls to the process. It answers them in order, so one timer covers the oldest call. */
function createCallChannel(child: ChildProcess, callMilliseconds: number): CallChannel {
  const waiting = new Map<number, Waiter>()
  let lastId = 0
  let brokenBy: string | null = null
  let callTimer: NodeJS.Timeout | undefined

  const breakDown = (reason: string): void => {
    if (brokenBy !== null) return
    brokenBy = reason
    clearTimeout(callTimer)
    child.kill('SIGKILL')
    for (const { reject } of waiting.values()) reject(new Broken(reason))
    waiting.clear()
    // Keep this process alive until the child has exited.
    holdOpen(child, true)
  }
  const restartTimer = (): void => {
    clearTimeout(callTimer)
    if (waiting.size === 0) return
    const reason = `The token did not answer within ${callMilliseconds / 1000} s.`
    callTimer = setTimeout(() => breakDown(reason), callMilliseconds)
  }
  const post = (message: ToTokenProcess): void => {
    child.send(message, error => {
      if (error !== null) breakDown('The token process exited.')
    })
  }
  const ask = (call: TokenCall): Promise<TokenResult> =>
    new Promise((resolve, reject) => {
      if (brokenBy !== null) {
        reject(new Broken(brokenBy))
        return
      }
      const id = ++lastId
      waiting.set(id, { resolve, reject })
      if (waiting.size === 1) {
        holdOpen(child, true)
        restartTimer()
      }
      post({ id, ask: call })
    })
  const answer = (id: number, settle: (waiter: Waiter) => void): void => {
    const waiter = waiting.get(id)
    waiting.delete(id)
    restartTimer()
    if (waiting.size === 0) holdOpen(child, false)
    if (waiter !== undefined) settle(waiter)
  }
  return { ask, answer, post, breakDown, brokenBy: () => brokenBy }
}

function errorOf({ fault, reason }: TokenFault): Error {
  if (fault === 'broken') return new Broken(reason)
  if (fault === 'absent') return new Absent(reason)
  return fault === 'misconfigured' ? new CryptoMisconfigured(reason) : new CannotOpen(fault)
}

/** Whether the child keeps this process alive: only while calls wait. */
function holdOpen(child: ChildProcess, isHeld: boolean): void {
  if (isHeld) {
    child.ref()
    child.channel?.ref()
  } else {
    child.unref()
    child.channel?.unref()
  }
}
