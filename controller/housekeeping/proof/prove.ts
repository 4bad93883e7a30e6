import type { Database } from '../../database/connection.js'
import { readTree } from '../../load-balancer/tree/read-tree.js'
import type { LoadBalancerTree } from '../../load-balancer/tree/tree.js'
import type { Logger } from '../../log/log.js'
import { agentTarget } from '../../provider/amphora/agent/agent.js'
import type { AgentConnections } from '../../provider/amphora/agent/connection.js'
import { shakeHands } from './handshake.js'
import { type Proof, planProofs } from './plan.js'
import {
  forget,
  knownCertificates,
  type Place,
  problemCounts,
  proveSoon,
  type Result,
  type ServingAmphora,
  servingAmphorae,
  standing,
  storeResults,
  takeDue,
} from './store.js'

export type Proving = {
  database: Database
  agents: AgentConnections
  masterKey: Buffer
  /** Between two proofs without a deployment. */
  intervalSeconds: number
  /** Ends it. */
  signal: AbortSignal
  log: Logger
}

const AT_ONCE = 8
/** Of one load balancer, each with another listener. */
const HANDSHAKES_AT_ONCE = 4
const TIMEOUT_MS = 4_000
/** For all handshakes of a load balancer: a tenant can make each take long, and others wait. */
const LIMIT_MS = 15_000
/** While something is wrong, or changes. */
const SOON_SECONDS = 5

export type Prover = {
  /** Begins the proofs that are due, a few at once. */
  proveDue: () => Promise<void>
  /** Waits for those that have begun. */
  settled: () => Promise<void>
}

/**
 * Sees for itself what the listeners of load balancers serve whose proof is due, after a deployment and then at
 * intervals: a handshake with each VIP, name and amphora. What an amphora says of itself does not count.
 */
export function createProver(proving: Proving): Prover {
  const running = new Map<string, Promise<void>>()
  const begin = (id: string) => {
    const proof = proveOne(proving, id)
      .catch((error: unknown) =>
        proving.log.warn({ loadBalancer: id, err: error }, 'cannot prove what listeners serve'),
      )
      .finally(() => running.delete(id))
    running.set(id, proof)
  }
  return {
    proveDue: async () => {
      while (!proving.signal.aborted) {
        if (running.size >= AT_ONCE) await Promise.race(running.values())
        const free = AT_ONCE - running.size
        const due = await takeDue(proving.database, proving.intervalSeconds, free, [...running.keys()])
        if (due.length === 0) return
        due.forEach(begin)
      }
    },
    settled: async () => void (await Promise.all(running.values())),
  }
}

async function proveOne(proving: Proving, id: string): Promise<void> {
  const { database, log } = proving
  const before = await standing(database, id)
  const tree = await readTree(database, id)
  if (tree === null) return
  if (before === null) {
    await proveSoon(database, id, SOON_SECONDS)
    return
  }
  const proofs = planProofs(tree, await knownCertificates(database, id))
  if (proofs.length === 0) {
    await forget(database, id)
    const amphorae = await servingAmphorae(database, id)
    await Promise.all(amphorae.map(amphora => tell(proving, amphora, 0)))
    return
  }
  const amphorae = await servingAmphorae(database, id)
  const wanted = handshakesOf(tree, amphorae, proofs)
  const results = await tryAll(proving, wanted)
  // An amphora may have shown what came before or after what was expected.
  if ((await standing(database, id)) !== before) {
    await proveSoon(database, id, SOON_SECONDS)
    return
  }
  const verdicts = await storeResults(database, id, tree.generation, wanted.map(placeOf), results)
  for (const { amphoraId, problems, recovered } of verdicts) {
    const what = { loadBalancer: id, amphora: amphoraId }
    if (problems.length > 0) log.error({ ...what, problems }, 'a listener serves another certificate than it should')
    else log.info({ ...what, recovered }, 'listeners serve their certificates again')
  }
  const counts = await problemCounts(database, id)
  if ([...counts.values()].some(count => count > 0)) await proveSoon(database, id, SOON_SECONDS)
  await Promise.all(amphorae.map(amphora => tell(proving, amphora, counts.get(amphora.id))))
}

/** Tells an amphora what was seen of it, for its metrics. One that cannot be reached is told after the next proof. */
async function tell({ agents, masterKey, log }: Proving, amphora: ServingAmphora, mismatches: number | undefined) {
  if (mismatches === undefined) return
  const target = agentTarget(masterKey, amphora.id, amphora.address)
  await agents.request(target, { verb: 'proof', mismatches }, { timeoutMs: TIMEOUT_MS }).catch((error: unknown) => {
    log.debug({ amphora: amphora.id, err: error }, 'the amphora does not know what was seen of it')
  })
}

type Handshake = { amphora: ServingAmphora; address: string | null; proof: Proof }

function handshakesOf(
  tree: LoadBalancerTree,
  amphorae: readonly ServingAmphora[],
  proofs: readonly Proof[],
): Handshake[] {
  const vips = [tree.vip, ...tree.additionalVips].map(({ address }) => address)
  return amphorae.flatMap(amphora =>
    proofs.flatMap(proof => addressesFor(tree, amphora, vips).map(address => ({ amphora, address, proof }))),
  )
}

const placeOf = ({ amphora, address, proof: { listenerId, name, keyType } }: Handshake): Place => ({
  ...{ listenerId, amphoraId: amphora.id, address: address ?? '', name: name ?? '', keyType },
})

/** Leaves a listener after its first handshake without an answer, until the next proof. */
async function tryAll(proving: Proving, wanted: readonly Handshake[]): Promise<Result[]> {
  const until = performance.now() + LIMIT_MS
  const results: Result[] = []
  const pending = byListener(wanted).values()
  const some = async () => {
    for (const handshakes of pending) {
      for (const handshake of handshakes) {
        const left = until - performance.now()
        if (left <= 0) return
        const result = await tryHandshake(proving, handshake, Math.min(left, TIMEOUT_MS))
        if (result === 'no answer') break
        if (result !== null) results.push(result)
      }
    }
  }
  await Promise.all(Array.from({ length: HANDSHAKES_AT_ONCE }, some))
  return results
}

/** Of each listener of each amphora. Another one is the first each time, so that none is always too late. */
function byListener(wanted: readonly Handshake[]): Handshake[][] {
  const found = new Map<string, Handshake[]>()
  for (const handshake of wanted) {
    const key = `${handshake.amphora.id} ${handshake.proof.listenerId}`
    const others = found.get(key)
    if (others === undefined) found.set(key, [handshake])
    else others.push(handshake)
  }
  const all = [...found.values()]
  const first = Math.floor(Math.random() * all.length)
  return [...all.slice(first), ...all.slice(0, first)]
}

/** A single amphora has the VIPs. In a pair, each amphora is seen by itself, and the one with the VIPs there too. */
function addressesFor(
  { topology }: LoadBalancerTree,
  { holdsVip }: ServingAmphora,
  vips: readonly string[],
): (string | null)[] {
  if (topology === 'SINGLE') return [...vips]
  return holdsVip ? [null, ...vips] : [null]
}

/** @returns null or 'no answer' if nothing was seen: whether an amphora can be reached is for others to say */
async function tryHandshake(
  { agents, masterKey, log }: Proving,
  handshake: Handshake,
  timeoutMs: number,
): Promise<Result | 'no answer' | null> {
  const { amphora, address, proof } = handshake
  const { listenerId, port, name, keyType, accepted } = proof
  const [digest = ''] = accepted
  const place = placeOf(handshake)
  const target = agentTarget(masterKey, amphora.id, amphora.address)
  try {
    const stream = await agents.relay(target, { address, port, listenerId }, timeoutMs)
    const seen = await shakeHands(stream, { name, keyType }, timeoutMs)
    if ('failure' in seen) {
      log.debug({ ...place, failure: seen.failure }, 'no handshake')
      return seen.isLate === true ? 'no answer' : null
    }
    if ('refusal' in seen) return { ...place, digest, problem: problemOf(proof, address, 'serves no certificate') }
    if (accepted.includes(seen.digest)) return { ...place, digest: seen.digest, problem: null }
    return { ...place, digest, problem: problemOf(proof, address, 'serves another certificate or chain') }
  } catch (error) {
    log.debug({ ...place, err: error }, 'no handshake')
    return 'no answer'
  }
}

function problemOf({ listenerId, port, name }: Proof, address: string | null, what: string): string {
  const place = `listener ${listenerId} on port ${port}${address === null ? '' : ` of ${address}`}`
  return `${place} ${what} for ${name === null ? 'clients that ask for no name' : name}`
}
