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
  isUnchanged,
  knownCertificates,
  type Place,
  problemCounts,
  proveSoon,
  type Result,
  type ServingAmphora,
  servingAmphorae,
  storeResults,
  takeDue,
} from './store.js'

export type Proving = {
  database: Database
  agents: AgentConnections
  masterKey: Buffer
  /** Between two proofs without a deployment. */
  intervalSeconds: number
  log: Logger
}

const AT_ONCE = 8
const HANDSHAKES_AT_ONCE = 4
const TIMEOUT_MS = 4_000
/** While something is wrong. */
const SOON_SECONDS = 5

/**
 * Sees for itself what the listeners of load balancers serve whose proof is due, after a deployment and then at
 * intervals: a handshake with each VIP, name and amphora. What an amphora says of itself does not count.
 */
export async function proveCertificates(proving: Proving): Promise<void> {
  const due = await takeDue(proving.database, proving.intervalSeconds, AT_ONCE)
  await Promise.all(due.map(id => proveOne(proving, id)))
}

async function proveOne(proving: Proving, id: string): Promise<void> {
  const { database, log } = proving
  const tree = await readTree(database, id)
  if (tree === null) return
  const proofs = planProofs(tree, await knownCertificates(database, id))
  if (proofs.length === 0) {
    await forget(database, id)
    const amphorae = await servingAmphorae(database, id)
    await Promise.all(amphorae.map(amphora => tell(proving, amphora, 0)))
    return
  }
  // A deployment under way asks for another proof once it is done.
  if (tree.generation > tree.appliedGeneration) return
  const amphorae = await servingAmphorae(database, id)
  const wanted = handshakesOf(tree, amphorae, proofs)
  const results = await tryAll(proving, wanted)
  if (!(await isUnchanged(database, id, tree.generation, tree.boundSha256))) return
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

async function tryAll(proving: Proving, wanted: readonly Handshake[]): Promise<Result[]> {
  const results: Result[] = []
  const pending = wanted.values()
  const some = async () => {
    for (const handshake of pending) {
      const result = await tryHandshake(proving, handshake)
      if (result !== null) results.push(result)
    }
  }
  await Promise.all(Array.from({ length: HANDSHAKES_AT_ONCE }, some))
  return results
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

/** @returns null if nothing was seen: whether an amphora can be reached is for others to say */
async function tryHandshake({ agents, masterKey, log }: Proving, handshake: Handshake): Promise<Result | null> {
  const { amphora, address, proof } = handshake
  const { listenerId, port, name, keyType, accepted } = proof
  const [digest = ''] = accepted
  const place = placeOf(handshake)
  const target = agentTarget(masterKey, amphora.id, amphora.address)
  try {
    const stream = await agents.relay(target, { address, port, listenerId }, TIMEOUT_MS)
    const seen = await shakeHands(stream, { name, keyType }, TIMEOUT_MS)
    if ('failure' in seen) {
      log.debug({ ...place, failure: seen.failure }, 'no handshake')
      return null
    }
    if ('refusal' in seen) return { ...place, digest, problem: problemOf(proof, address, 'serves no certificate') }
    if (accepted.includes(seen.digest)) return { ...place, digest: seen.digest, problem: null }
    return { ...place, digest, problem: problemOf(proof, address, 'serves another certificate or chain') }
  } catch (error) {
    log.debug({ ...place, err: error }, 'no handshake')
    return null
  }
}

function problemOf({ listenerId, port, name }: Proof, address: string | null, what: string): string {
  const place = `listener ${listenerId} on port ${port}${address === null ? '' : ` of ${address}`}`
  return `${place} ${what} for ${name === null ? 'clients that ask for no name' : name}`
}
