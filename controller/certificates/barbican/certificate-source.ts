import { ApiError, badRequest, FloodError } from '../../http/errors.js'
import { IdentityAway } from '../../identity/external/identity-away.js'
import type { Logger } from '../../log/log.js'
import { createFairQueue } from '../../process/fair-queue.js'
import { createQueues } from '../../process/in-turn.js'
import { computationsAtOnce } from '../../process/thread-pool.js'
import type { BadReference, CertificateSource } from '../certificate-source.js'
import { createInspector, type InspectorOptions } from '../inspection/inspector.js'
import { BadTarget, KeyManagerAway } from './key-manager-away.js'
import { createKeyManagerClient, type KeyManagerClientOptions } from './key-manager-client.js'
import { type Item, itemsOf } from './load.js'
import { createReading, type ReadingOptions } from './reading.js'
import type { ServiceUser } from './service-user.js'

export type CheckLimits = {
  /** Of one request. */
  mostReferences: number
  /** Of one request that are read at once. */
  referencesAtOnce: number
  /** Requests; others wait. */
  checksAtOnce: number
  /** Requests of one project. */
  checksAtOncePerProject: number
  mostWaiting: number
  mostWaitingPerProject: number
  /** For one request, and for its turn. */
  checkSeconds: number
}

/** Two at least, so that no project's inspections hold up another's. */
const checksAtOnce = Math.max(2, computationsAtOnce())

export const CHECK_LIMITS: CheckLimits = {
  mostReferences: 128,
  referencesAtOnce: 4,
  checksAtOnce,
  checksAtOncePerProject: Math.ceil(checksAtOnce / 2),
  mostWaiting: 1024,
  mostWaitingPerProject: 64,
  checkSeconds: 30,
}

const RETRY_SECONDS = 5

export const INSPECTION_MILLISECONDS = 5000

export type BarbicanOptions = {
  /** Its address is the key manager's root, without /v1. */
  keyManager: KeyManagerClientOptions
  serviceUser: ServiceUser
  inspector: InspectorOptions
  limits?: CheckLimits
  log: Logger
}

/** Certificates that are in a key manager with Barbican's API, Krater's own or another, reached over HTTP only. */
export function createBarbicanSource(options: BarbicanOptions): CertificateSource {
  const { keyManager, serviceUser, log, limits = CHECK_LIMITS } = options
  const client = createKeyManagerClient(keyManager)
  const queue = createFairQueue({
    atOnce: limits.checksAtOnce,
    atOncePerLane: limits.checksAtOncePerProject,
    mostWaiting: limits.mostWaiting,
    mostWaitingPerLane: limits.mostWaitingPerProject,
    refusal: tooMany,
  })

  return {
    check: async ({ token, project, user }, requested) => {
      const items = itemsOf(requested)
      if (items.length === 0) return []
      if (items.length > limits.mostReferences) {
        throw badRequest(`A request may refer to ${limits.mostReferences} certificates at most; this one has more.`)
      }
      const leave = await within(queue.enter([project, user]), limits.checkSeconds, () => tooMany(project))
      return checkItems(items, { client, serviceUser, token }, options.inspector, limits)
        .catch(error => {
          if (!(error instanceof KeyManagerAway || error instanceof IdentityAway)) throw error
          log.warn(`Certificate references cannot be checked: ${error.message}`)
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

/** A turn that comes in time; one that comes later is given up at once. @throws the refusal */
async function within(turn: Promise<() => void>, seconds: number, refusal: () => Error): Promise<() => void> {
  const patience = AbortSignal.timeout(seconds * 1000)
  const late = new Promise<never>((_, reject) => {
    patience.addEventListener('abort', () => reject(refusal()), { once: true })
  })
  return Promise.race([turn, late]).catch(error => {
    turn.then(
      leave => leave(),
      () => undefined,
    )
    throw error
  })
}

/** @returns the references that are not good, in the order of the items @throws KeyManagerAway, IdentityAway */
async function checkItems(
  items: readonly Item[],
  who: Omit<ReadingOptions, 'signal'>,
  inspectorOptions: InspectorOptions,
  { checkSeconds, referencesAtOnce }: CheckLimits,
): Promise<readonly BadReference[]> {
  const failure = new AbortController()
  const deadline = AbortSignal.timeout(checkSeconds * 1000)
  const signal = AbortSignal.any([deadline, failure.signal])
  const reading = createReading({ ...who, signal })
  const inspector = createInspector(inspectorOptions)
  const oneByOne = createQueues()
  const reasons = new Map<Item, string>()
  const left = items.values()

  const checkSome = async (): Promise<void> => {
    for (const item of left) {
      if (signal.aborted) return
      const reason = await item
        .load(reading)
        .then(material => oneByOne('inspector', () => inspector.inspect(material, signal)))
        .catch(error => {
          if (error instanceof BadTarget) return error.message
          throw error
        })
      if (reason !== null) reasons.set(item, reason)
    }
  }
  try {
    // The first failure ends the others, and the thread is not ended before them.
    const some = () => checkSome().catch(error => failure.abort(error))
    await Promise.all(Array.from({ length: referencesAtOnce }, some))
    if (deadline.aborted) throw new KeyManagerAway(`a check took longer than ${checkSeconds} s`)
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
