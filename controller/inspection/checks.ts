import type { Inspected } from '../../x509/material/inspect.js'
import { type Item, itemsOf, type MaterialKind, type Reader } from '../../x509/material/load.js'
import { Unusable } from '../../x509/material/material.js'
import type { RequestedReferences } from '../../x509/material/reference.js'
import { ApiError, badRequest, FloodError } from '../http/errors.js'
import { createFairQueue, type Place } from '../process/fair-queue.js'
import { createQueues } from '../process/in-turn.js'
import { computationsAtOnce } from '../process/thread-pool.js'
import { createInspector, createInspectorThreads, type InspectorOptions } from './inspector.js'

export type CheckLimits = {
  /** Per request. */
  maxReferences: number
  /** Per request. */
  maxConcurrentReads: number
  /** Requests that are checked at once; others wait. */
  maxChecks: number
  maxChecksPerProject: number
  maxWaiting: number
  maxWaitingPerProject: number
  /** Limits the wait for a turn and then the check. */
  checkSeconds: number
}

/** At least two, so that one project cannot block the others. */
const maxChecks = Math.max(2, computationsAtOnce())

export const CHECK_LIMITS: CheckLimits = {
  maxReferences: 128,
  maxConcurrentReads: 4,
  maxChecks,
  maxChecksPerProject: Math.ceil(maxChecks / 2),
  maxWaiting: 1024,
  maxWaitingPerProject: 64,
  checkSeconds: 30,
}

const RETRY_SECONDS = 5

export const INSPECTION_MILLISECONDS = 5000

/** What a reference leads to, or why it cannot be used. */
export type Verdict = { ref: string; kind: MaterialKind } & Inspected

/** Checks references of requests. */
export type Checks = {
  /**
   * Reads what each reference leads to and inspects it. Keeps nothing of it.
   * @param place projects take turns
   * @param readerFor a reader whose reads end when the signal aborts
   * @returns a verdict on each reference for each kind that it must lead to; on a revocation list for each authority
   * @throws ApiError 400 when there are too many, 503 with Retry-After when there is no turn; CheckTooSlow; what the
   *   reader throws, except Unusable
   */
  check: (
    place: Place,
    requested: RequestedReferences,
    readerFor: (signal: AbortSignal) => Reader,
  ) => Promise<readonly Verdict[]>
}

/** The check took longer than it may. */
export class CheckTooSlow extends Error {}

export function createChecks(inspector: InspectorOptions, limits: CheckLimits = CHECK_LIMITS): Checks {
  const turns = createCheckTurns(limits)
  const threads = createInspectorThreads(inspector.program)
  return {
    check: (place, requested, readerFor) =>
      turns(place, requested, items =>
        checkItems(items, readerFor, { ...inspector, threads }, limits).finally(threads.prepare),
      ),
  }
}

/**
 * Lets the checks of all projects have their turns, whoever carries them out.
 * @returns a function that waits for a turn; it does not work without references. It throws ApiError 400 when there are
 *   too many, 503 with Retry-After when there is no turn, and what the work throws
 */
export function createCheckTurns(
  limits: CheckLimits,
): (
  place: Place,
  requested: RequestedReferences,
  work: (items: readonly Item[]) => Promise<readonly Verdict[]>,
) => Promise<readonly Verdict[]> {
  const queue = createFairQueue({
    maxRunning: limits.maxChecks,
    maxRunningPerLane: limits.maxChecksPerProject,
    maxWaiting: limits.maxWaiting,
    maxWaitingPerLane: limits.maxWaitingPerProject,
    refusal: tooMany,
  })
  return async (place, requested, work) => {
    const items = itemsOf(requested)
    if (items.length === 0) return []
    if (items.length > limits.maxReferences) {
      throw badRequest(`A request may refer to at most ${limits.maxReferences} certificates.`)
    }
    const leave = await within(queue.enter(place), limits.checkSeconds, () => tooMany(place[0]))
    return work(items).finally(leave)
  }
}

/** A check that cannot be made now. @param reason a sentence without its full stop */
export const checkUnavailable = (reason: string) =>
  new ApiError(503, `${reason}; nothing was changed. Try again later.`, { 'Retry-After': String(RETRY_SECONDS) })

const tooMany = (project: string) =>
  new FloodError(
    503,
    'Too many certificate references are being checked at the moment; nothing was changed. Try again later.',
    `Certificate references of project ${project || 'none'}`,
    RETRY_SECONDS,
  )

/** Waits for a turn. A turn that comes too late is given back at once. @throws the refusal */
async function within(turn: Promise<() => void>, seconds: number, refusal: () => Error): Promise<() => void> {
  const deadline = AbortSignal.timeout(seconds * 1000)
  const late = new Promise<never>((_, reject) => {
    deadline.addEventListener('abort', () => reject(refusal()), { once: true })
  })
  return Promise.race([turn, late]).catch(error => {
    turn.then(
      leave => leave(),
      () => undefined,
    )
    throw error
  })
}

async function checkItems(
  items: readonly Item[],
  readerFor: (signal: AbortSignal) => Reader,
  inspectorOptions: InspectorOptions,
  { checkSeconds, maxConcurrentReads }: CheckLimits,
): Promise<readonly Verdict[]> {
  const failure = new AbortController()
  const deadline = AbortSignal.timeout(checkSeconds * 1000)
  const signal = AbortSignal.any([deadline, failure.signal])
  const reader = readerFor(signal)
  const inspector = createInspector(inspectorOptions)
  const inTurn = createQueues()
  const found = new Map<Item, Inspected>()
  const pending = items.values()

  const checkSome = async (): Promise<void> => {
    for (const item of pending) {
      if (signal.aborted) return
      const inspected = await item
        .load(reader)
        .then(material => inTurn('inspector', () => inspector.inspect(material, signal)))
        .catch((error: unknown): Inspected => {
          if (error instanceof Unusable) return { wrong: error.message }
          throw error
        })
      found.set(item, inspected)
    }
  }
  try {
    // The first failure aborts the others. The thread ends after all of them.
    const checkOrAbort = () => checkSome().catch(error => failure.abort(error))
    await Promise.all(Array.from({ length: maxConcurrentReads }, checkOrAbort))
    if (deadline.aborted) throw new CheckTooSlow(`the check took longer than ${checkSeconds} s`)
    failure.signal.throwIfAborted()
  } finally {
    await inspector.close()
  }
  return items.flatMap(item => {
    const { ref, kind } = item
    const inspected = found.get(item)
    return inspected === undefined ? [] : [{ ref, kind, ...inspected }]
  })
}
