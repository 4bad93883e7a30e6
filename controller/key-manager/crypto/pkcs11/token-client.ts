import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { CannotOpen, CryptoMisconfigured, CryptoUnavailable } from '../backend.js'
import type { FromTokenProcess, TokenCall, TokenFault, TokenResult, TokenSettings, ToTokenProcess } from './calls.js'

/** For a Node process to start and a library to find its token. */
const START_LIMIT_MS = 20_000
/** After a failure that loading anew did not mend, calls are refused at once for as long. */
const PAUSE_MS = 1000

export type TokenClientOptions = {
  settings: TokenSettings
  /** For one call, from when the token has begun it. */
  callMilliseconds: number
  /** Calls that may wait. */
  queueLimit: number
  /** The script of the process that holds the token; the one beside the bundle when not given. */
  program?: string
}

/** Asks the process that holds the token; it is started when needed, and anew when it hangs, crashes or its library fails. */
export type TokenClient = {
  /** @throws CryptoUnavailable, CryptoMisconfigured, CannotOpen */
  ask: (call: TokenCall) => Promise<TokenResult>
  /** Not waited for, and passed over when no process runs. */
  tell: (call: TokenCall) => void
  stop: () => Promise<void>
}

/** The process cannot go on. */
class Broken extends Error {}

/** The master key is not there; a library that has lost sight of its token for a while says so as well. */
class Absent extends Broken {}

type Running = {
  ask: (call: TokenCall) => Promise<TokenResult>
  end: (reason: string) => Promise<void>
}

export function createTokenClient(options: TokenClientOptions): TokenClient {
  const { queueLimit } = options
  let current: Promise<Running> | null = null
  let startedAt = 0
  let waiting = 0
  let refusal: CryptoMisconfigured | null = null
  let pause: { until: number; reason: string } | null = null

  const attempt = async (call: TokenCall): Promise<TokenResult> => {
    if (current === null) startedAt = performance.now()
    const used = current ?? startProcess(options)
    current = used
    try {
      return await (await used).ask(call)
    } catch (error) {
      // Of many calls that fail at once the first puts the process away; the others find a new one.
      const isFresh = error instanceof Absent && performance.now() - startedAt < PAUSE_MS
      if (error instanceof Broken && !isFresh && current === used) {
        current = null
        await endOf(used, error.message)
      }
      throw error
    }
  }
  const ask = async (call: TokenCall): Promise<TokenResult> => {
    if (refusal !== null) throw refusal
    if (pause !== null && performance.now() < pause.until) throw new CryptoUnavailable(pause.reason)
    if (waiting >= queueLimit) throw new CryptoUnavailable(`${queueLimit} calls wait for the token already.`)
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

  return {
    ask,
    tell: call => {
      current?.then(running => running.ask(call)).catch(() => undefined)
    },
    stop: async () => {
      const last = current
      current = null
      if (last !== null) await endOf(last, 'It was stopped.')
    },
  }
}

const endOf = (process: Promise<Running>, reason: string): Promise<void> =>
  process.then(
    running => running.end(reason),
    () => undefined,
  )

const beside = fileURLToPath(new URL('token-process.js', import.meta.url))

type Waiting = { resolve: (result: TokenResult) => void; reject: (error: Error) => void }

function startProcess({ settings, callMilliseconds, program = beside }: TokenClientOptions): Promise<Running> {
  const child = fork(program, [], {
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: [],
    cwd: '/',
  })
  const ended = new Promise<void>(resolve => child.once('exit', () => resolve()))
  // Calls are answered in their order.
  const waiting = new Map<number, Waiting>()
  let lastId = 0
  let brokenBy: string | null = null
  let limit: NodeJS.Timeout | undefined

  const breakDown = (reason: string): void => {
    if (brokenBy !== null) return
    brokenBy = reason
    clearTimeout(limit)
    child.kill('SIGKILL')
    for (const { reject } of waiting.values()) reject(new Broken(reason))
    waiting.clear()
    // Its end is waited for.
    holdOpen(child, true)
  }
  const restartLimit = (): void => {
    clearTimeout(limit)
    if (waiting.size === 0) return
    const reason = `The token did not answer within ${callMilliseconds / 1000} s.`
    limit = setTimeout(() => breakDown(reason), callMilliseconds)
  }
  const post = (message: ToTokenProcess): void => {
    child.send(message, error => {
      if (error !== null) breakDown('The process that holds the token has ended.')
    })
  }
  const settle = (id: number, act: (waiter: Waiting) => void): void => {
    const waiter = waiting.get(id)
    waiting.delete(id)
    restartLimit()
    if (waiting.size === 0) holdOpen(child, false)
    if (waiter !== undefined) act(waiter)
  }

  const running: Running = {
    ask: call =>
      new Promise((resolve, reject) => {
        if (brokenBy !== null) {
          reject(new Broken(brokenBy))
          return
        }
        const id = ++lastId
        waiting.set(id, { resolve, reject })
        if (waiting.size === 1) {
          holdOpen(child, true)
          restartLimit()
        }
        post({ id, ask: call })
      }),
    end: async reason => {
      breakDown(reason)
      await ended
    },
  }

  return new Promise((resolve, reject) => {
    const tooLong = setTimeout(() => breakDown('The PKCS#11 library did not get ready in time.'), START_LIMIT_MS)
    const fail = (error: Error): void => {
      clearTimeout(tooLong)
      breakDown(error.message)
      reject(error)
    }
    child.on('error', error => fail(new Broken(`The process that holds the token cannot be used: ${error.message}.`)))
    child.once('exit', (code, signal) => {
      fail(new Broken(brokenBy ?? `The process that holds the token ended (${signal ?? `status ${code}`}).`))
    })
    child.on('message', (message: FromTokenProcess) => {
      if ('started' in message) {
        clearTimeout(tooLong)
        if (!message.started) {
          fail(errorOf(message.fault))
          return
        }
        holdOpen(child, false)
        resolve(running)
      } else if ('result' in message) settle(message.id, ({ resolve: give }) => give(message.result))
      else settle(message.id, ({ reject: refuse }) => refuse(errorOf(message.fault)))
    })
    post({ start: settings })
  })
}

function errorOf({ fault, reason }: TokenFault): Error {
  if (fault === 'broken') return new Broken(reason)
  if (fault === 'absent') return new Absent(reason)
  return fault === 'misconfigured' ? new CryptoMisconfigured(reason) : new CannotOpen(fault)
}

/** Without calls that wait the process keeps nobody from ending. */
function holdOpen(child: ChildProcess, isHeld: boolean): void {
  if (isHeld) {
    child.ref()
    child.channel?.ref()
  } else {
    child.unref()
    child.channel?.unref()
  }
}
