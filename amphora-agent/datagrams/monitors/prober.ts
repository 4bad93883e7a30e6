import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import type { Log } from '../../log/log.js'
import { haproxyAccount } from '../../ping/ping.js'
import { PERL } from '../../seccomp/launcher.js'
import type { Exchanges } from './probe.js'
import { type Exchange, MAX_LINE, type Outcome, parseOutcome, READY, requestLine } from './prober-lines.js'
import { proberProgram } from './prober-program.js'

/** A prober that does not answer for so long after the limit of an exchange hangs. */
const GRACE_MS = 3_000
const START_MS = 5_000
const LOOK_MS = 1_000
/** A prober that ran for less is started again after this pause. */
const SHORT_RUN_MS = 5_000
const MAX_COMPLAINT = 500

/** Numbers of exchanges, which are source ports too: above the well-known ones. */
const FIRST_NUMBER = 1_024
const LAST_NUMBER = 65_535

/** What became of exchanges that a prober did not end. */
const LOST: Outcome = { end: 'unable', words: 'the prober has ended' }

type Pending = { settle: (outcome: Outcome) => void; hangsAt: number }

type Running = { child: ChildProcess; startedAt: number; isReady: boolean; pending: Map<number, Pending> }

type ProberOptions = {
  /** A prober ended that was not asked to, or hung; another one takes its place. */
  onFailure: (text: string) => void
  log: Log
}

/**
 * A process under HAProxy's account that exchanges packets with members, so that they reach nothing that HAProxy could
 * not. It starts with the first exchange and is replaced when it ends or hangs; what it had begun is then unknown.
 */
export class Prober implements Exchanges {
  readonly #options: ProberOptions
  #running: Running | null = null
  #lastId = 0
  #lastNumber = randomInt(FIRST_NUMBER, LAST_NUMBER + 1)
  /** No start before that. */
  #notBefore = Number.NEGATIVE_INFINITY
  #lastComplaint = ''
  #closed = false
  readonly #watch = setInterval(() => this.#killHung(), LOOK_MS).unref()

  constructor(options: ProberOptions) {
    this.#options = options
  }

  exchange(exchange: Exchange): Promise<Outcome> {
    const running = this.#ensure()
    if (running === null) return Promise.resolve(LOST)
    const id = ++this.#lastId
    return new Promise(settle => {
      running.pending.set(id, { settle, hangsAt: performance.now() + exchange.limitMs + GRACE_MS })
      running.child.stdin?.write(requestLine(id, exchange))
    })
  }

  send(exchange: Exchange): void {
    this.#running?.child.stdin?.write(requestLine(0, exchange))
  }

  number(): number {
    this.#lastNumber = this.#lastNumber === LAST_NUMBER ? FIRST_NUMBER : this.#lastNumber + 1
    return this.#lastNumber
  }

  /** Ends the process. Exchanges under way become unknown. */
  async close(): Promise<void> {
    this.#closed = true
    clearInterval(this.#watch)
    const child = this.#running?.child
    if (child === undefined) return
    const gone = new Promise(resolve => child.once('close', resolve))
    child.kill('SIGKILL')
    await gone
  }

  /** @returns null if no prober can run now */
  #ensure(): Running | null {
    if (this.#running !== null || this.#closed || performance.now() < this.#notBefore) return this.#running
    this.#notBefore = performance.now() + SHORT_RUN_MS
    try {
      const { uid, gid } = haproxyAccount()
      this.#running = this.#start(uid, gid)
    } catch (error) {
      this.#complain(error instanceof Error ? error.message : String(error))
    }
    return this.#running
  }

  #start(uid: number, gid: number): Running {
    const child = spawn(PERL, ['-e', proberProgram(process.arch), String(uid), String(gid)], {
      stdio: ['pipe', 'pipe', 'pipe'],
      cwd: '/',
      env: { LC_ALL: 'C' },
    })
    const running: Running = { child, startedAt: performance.now(), isReady: false, pending: new Map() }
    let complaint = ''
    let text = ''
    child.stdout.setEncoding('latin1').on('data', (piece: string) => {
      text += piece
      const lines = text.split('\n')
      text = lines.pop() ?? ''
      const understood = text.length <= MAX_LINE && lines.every(line => this.#read(running, line))
      if (!understood) child.kill('SIGKILL')
    })
    child.stderr.setEncoding('latin1').on('data', (piece: string) => {
      complaint = (complaint + piece).slice(0, MAX_COMPLAINT)
    })
    // Its end says enough.
    child.stdin.on('error', () => {})
    child.on('error', error => this.#ended(running, error.message))
    child.on('close', () => this.#ended(running, complaint.trim()))
    return running
  }

  /** @returns false for a line that a prober in its right mind does not print */
  #read(running: Running, line: string): boolean {
    if (!running.isReady) {
      running.isReady = line === READY
      this.#lastComplaint = ''
      return running.isReady
    }
    const parsed = parseOutcome(line)
    if (parsed === null) return false
    const { id, outcome } = parsed
    if (outcome.end === 'unable') this.#complain(outcome.words)
    running.pending.get(id)?.settle(outcome)
    running.pending.delete(id)
    return true
  }

  #ended(running: Running, complaint: string): void {
    if (this.#running !== running) return
    this.#running = null
    for (const { settle } of running.pending.values()) settle(LOST)
    if (this.#closed) return
    if (performance.now() - running.startedAt >= SHORT_RUN_MS) this.#notBefore = Number.NEGATIVE_INFINITY
    if (running.isReady) this.#options.onFailure('the prober of members exited; restarted')
    if (complaint !== '') this.#complain(complaint)
  }

  #killHung(): void {
    const running = this.#running
    if (running === null) return
    const now = performance.now()
    const isLate = [...running.pending.values()].some(({ hangsAt }) => now >= hangsAt)
    const hasNotStarted = !running.isReady && now >= running.startedAt + START_MS
    if (isLate || hasNotStarted) running.child.kill('SIGKILL')
  }

  /** Logs what is new. */
  #complain(text: string): void {
    if (text !== this.#lastComplaint) this.#options.log.error(`cannot probe members: ${text}`)
    this.#lastComplaint = text
  }
}
