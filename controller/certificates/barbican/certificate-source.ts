import { ApiError, badRequest, FloodError } from '../../http/errors.js'
import { IdentityUnavailable } from '../../identity/external/identity-unavailable.js'
import type { Logger } from '../../log/log.js'
import { createFairQueue } from '../../process/fair-queue.js'
import { createQueues } from '../../process/in-turn.js'
import { computationsAtOnce } from '../../process/thread-pool.js'
import type { BadReference, CertificateSource } from '../certificate-source.js'
import { createInspector, type InspectorOptions } from '../inspection/inspector.js'
import { KeyManagerUnavailable, UnusableReference } from './errors.js'
import { createKeyManagerClient, type KeyManagerClientOptions } from './key-manager-client.js'
import { type Item, itemsToInspect } from './load.js'
import { createReader, type ReaderOptions } from './reader.js'
import type { ServiceUser } from './service-user.js'

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

export type BarbicanOptions = {
  /** Its `url` is the key manager's root, without /v1. */
  keyManager: KeyManagerClientOptions
  serviceUser: ServiceUser
  inspector: InspectorOptions
  limits?: CheckLimits
  log: Logger
}

/** Certificates in a key manager with Barbican's API, Krater's or another. Always reached over HTTP. */
export function createBarbicanSource(options: BarbicanOptions): CertificateSource {
  const { keyManager, serviceUser, log, limits = CHECK_LIMITS } = options
  const client = createKeyManagerClient(keyManager)
  const queue = createFairQueue({
    maxRunning: limits.maxChecks,
    maxRunningPerLane: limits.maxChecksPerProject,
    maxWaiting: limits.maxWaiting,
    maxWaitingPerLane: limits.maxWaitingPerProject,
    refusal: tooMany,
  })

  return {
    check: async ({ token, project, user }, requested) => {
      const items = itemsToInspect(requested)
      if (items.length === 0) return []
      if (items.length > limits.maxReferences) {
        throw badRequest(`A request may refer to at most ${limits.maxReferences} certificates.`)
      }
      const leave = await within(queue.enter([project, user]), limits.checkSeconds, () => tooMany(project))
      return checkItems(items, { client, serviceUser, token }, options.inspector, limits)
        .catch(error => {
          if (!(error instanceof KeyManagerUnavailable || error instanceof IdentityUnavailable)) throw error
          log.warn(`Cannot check certificate references: ${error.message}`)
          throw unavailable('The key manager does not answer, so certificate references cannot be checked')
        })
        .finally(leave)
    },
    close: client.close,
  }
}

const unavailable = (reason: string) =>
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

/** @returns the unusable references, in the order of the items @throws KeyManagerUnavailable, IdentityUnavailable */
async function checkItems(
  items: readonly Item[],
  readerOptions: Omit<ReaderOptions, 'signal'>,
  inspectorOptions: InspectorOptions,
  { checkSeconds, maxConcurrentReads }: CheckLimits,
): Promise<readonly BadReference[]> {
  const failure = new AbortController()
  const deadline = AbortSignal.timeout(checkSeconds * 1000)
  const signal = AbortSignal.any([deadline, failure.signal])
  const reader = createReader({ ...readerOptions, signal })
  const inspector = createInspector(inspectorOptions)
  const inTurn = createQueues()
  const reasons = new Map<Item, string>()
  const pending = items.values()

  const checkSome = async (): Promise<void> => {
    for (const item of pending) {
      if (signal.aborted) return
      const reason = await item
        .load(reader)
        .then(material => inTurn('inspector', () => inspector.inspect(material, signal)))
        .catch(error => {
          if (error instanceof UnusableReference) return error.message
          throw error
        })
      if (reason !== null) reasons.set(item, reason)
    }
  }
  try {
    // The first failure aborts the others. The thread ends after all of them.
    const checkOrAbort = () => checkSome().catch(error => failure.abort(error))
    await Promise.all(Array.from({ length: maxConcurrentReads }, checkOrAbort))
    if (deadline.aborted) throw new KeyManagerUnavailable(`the check took longer than ${checkSeconds} s`)
    failure.signal.throwIfAborted()
  } finally {
    await inspector.close()
  }
  const bad = new Map<string, string>()
  for (const item of items) {
    const reason = reasons.get(item)
    if (reason !== undefined && !bad.has(item.ref)) bad.set(item.ref, reason)
  }
  return [...bad].map(([ref, reason]) => ({ ref, reason }))
}
