import { setTimeout as sleep } from 'node:timers/promises'
import { type Bindings, KeyManagerAway } from '../../../bindings/bindings.js'
import { readLiveness } from '../../../health-manager/liveness.js'
import { judgeSilence } from '../../../health-manager/silence.js'
import { referencesIn } from '../../../load-balancer/tree/certificate-references.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import type { Port } from '../../../network/driver.js'
import type { Claim } from '../../../queue/claim.js'
import { isHeld } from '../../../queue/claim.js'
import { type Action, AppliedWithFault, ClaimLost, ProvisioningFault } from '../../provider.js'
import { AgentIncompatible, AgentUnreachable } from '../agent/errors.js'
import type { Observed } from '../plan/observation.js'
import { type PlanFacts, plan } from '../plan/plan.js'
import type { Step } from '../plan/step.js'
import type { HaproxySettings } from '../rendering/facts.js'
import { requestProof } from './amphora-rows.js'
import { StaleObservation } from './apply.js'
import { type Acting, type AmphoraParts, type Missing, runStep } from './executors.js'
import { lendCredential } from './lend.js'
import { observe, type Remembered } from './observe.js'
import { restartsLeft } from './restart-limiter.js'

export type ConvergeOptions = {
  parts: AmphoraParts
  staleAfterSeconds: number
  replaceAfterSeconds: number
  beatIntervalSeconds: number
  haproxy: HaproxySettings
  /** This process's observation when it last settled this load balancer. */
  remembered: Remembered | null
  /** Called for each completed action, for the history. */
  note: (action: Action) => void
}

/** Creating an amphora takes four rounds; more than this is a loop. */
const MAX_ROUNDS = 12
/** How often an amphora may differ from its observation. */
const MAX_STALE_OBSERVATIONS = 2
const STALE_PAUSE_MS = 200

/**
 * Observes, plans and acts in rounds until a plan settles. It keeps no essential state in memory: it may stop at any
 * instruction, and any worker may start over.
 * @returns the observation if it may be reused, or null if the next run must observe again
 * @throws ProvisioningFault, ClaimLost
 */
export async function converge(
  options: ConvergeOptions,
  claim: Claim,
  tree: LoadBalancerTree,
  signal: AbortSignal,
): Promise<Observed | null> {
  const { parts, staleAfterSeconds, note } = options
  const createdPorts = new Map<string, Port>()
  const assertHeld = () => {
    if (signal.aborted || !isHeld(claim)) throw new ClaimLost()
  }
  let remembered = options.remembered
  let current = tree
  let staleObservations = 0
  let isKeyManagerAway = false
  for (let round = 1; round <= MAX_ROUNDS; round++) {
    assertHeld()
    let observed = await observe({ parts, claim, tree, createdPorts }, remembered, staleAfterSeconds)
    const amphorae = observed.amphorae.map(({ id }) => id)
    if (tree.change !== 'delete') {
      // One that is away or slow costs time in one round only.
      if (!isKeyManagerAway) {
        const { binding, isAway } = await parts.bindings.bind(current, amphorae)
        current = { ...current, ...binding }
        isKeyManagerAway = isAway
      }
      observed = await lendCredential(parts, current, observed)
    }
    const { stages, settles } = plan(current, observed, await planFacts(options, claim, current, observed))
    const missing = missingIn(observed)
    const steps = stages.flat()
    try {
      for (const stage of stages)
        await runStage({ parts, claim, tree: current, observed, createdPorts, assertHeld, note, missing }, stage)
      if (settles) {
        await release(parts.bindings, current, amphorae)
        const servesCertificates = current.material.length > 0
        if (servesCertificates && steps.some(step => step.kind === 'apply')) await requestProof(parts.database, claim)
        reportMaterial(current, missing)
        return steps.every(step => step.kind === 'apply') ? observed : null
      }
    } catch (error) {
      const fault = staleObservationFault(error)
      if (fault === null) throw error
      staleObservations += 1
      if (staleObservations > MAX_STALE_OBSERVATIONS) throw fault
      await sleep(STALE_PAUSE_MS)
    }
    remembered = null
  }
  throw new ProvisioningFault('not-settling', `The desired state was not reached after ${MAX_ROUNDS} attempts.`)
}

/**
 * Releases what nothing serves any more.
 * @throws ProvisioningFault if the key manager cannot be told that a load balancer is gone
 */
async function release(bindings: Bindings, tree: LoadBalancerTree, amphorae: readonly string[]): Promise<void> {
  if (tree.change !== 'delete') return bindings.settle(tree, amphorae)
  await bindings.release(tree).catch((error: unknown) => {
    if (!(error instanceof KeyManagerAway)) throw error
    throw new ProvisioningFault(
      'certificates-in-use',
      'Nothing of the load balancer runs any more, but the key manager does not answer, so its certificates are still in use there.',
    )
  })
}

/** What amphorae miss, by their ids. */
const missingIn = ({ amphorae }: Observed): Missing =>
  new Map(amphorae.map(({ id, agent }) => [id, agent.state === 'answers' ? (agent.missing ?? []) : []]))

/**
 * Everything is in effect; what could not be had still serves as it was last known.
 * @throws AppliedWithFault that names the references and the reasons
 */
function reportMaterial(tree: LoadBalancerTree, missing: Missing): void {
  const wanted = new Set(referencesIn(tree).map(({ ref }) => ref))
  const reasons = new Map<string, string>()
  for (const { ref, problem } of tree.material) if (problem !== null && wanted.has(ref)) reasons.set(ref, problem)
  for (const one of [...missing.values()].flat()) if (!reasons.has(one.ref)) reasons.set(one.ref, one.reason)
  if (reasons.size === 0 && tree.mismatches.length > 0) {
    throw new AppliedWithFault('certificate-mismatch', `${tree.mismatches.slice(0, 3).join('; ')}.`)
  }
  if (reasons.size === 0) return
  const listed = [...reasons].map(([ref, reason]) => `${ref} (${reason})`).join(', ')
  throw new AppliedWithFault('certificate-unavailable', `The key manager does not give out ${listed}.`)
}

/** Waits for all steps even if one fails, so that nothing is still running when the failure is reported. */
async function runStage(acting: Acting, stage: readonly Step[]): Promise<void> {
  const results = await Promise.allSettled(stage.map(step => runStep(acting, step)))
  const reasons = results.flatMap(result => (result.status === 'rejected' ? [result.reason as unknown] : []))
  if (reasons.length === 0) return
  throw reasons.find(reason => reason instanceof ClaimLost) ?? reasons[0]
}

async function planFacts(
  options: ConvergeOptions,
  claim: Claim,
  tree: LoadBalancerTree,
  observed: Observed,
): Promise<PlanFacts> {
  const { staleAfterSeconds, replaceAfterSeconds, haproxy } = options
  const agentBundle = options.parts.agentBundle?.sha256 ?? null
  const facts = { fence: claim.fence, staleAfterSeconds, replaceAfterSeconds, haproxy, agentBundle }
  const mayNeedRepair = observed.amphorae.some(
    ({ machine, agent, mismatchedSeconds }) =>
      machine === 'running' && (agent.state !== 'answers' || mismatchedSeconds > replaceAfterSeconds),
  )
  if (!mayNeedRepair) return { ...facts, restartsLeft: 0, silentAlone: new Set() }
  const { database, restartLimits } = options.parts
  const [left, liveness] = await Promise.all([
    restartsLeft(database, tree.projectId, restartLimits),
    readLiveness(database, options.parts.hostId),
  ])
  const timing = { beatInterval: options.beatIntervalSeconds, staleAfter: staleAfterSeconds }
  const own = liveness.filter(({ loadBalancerId }) => loadBalancerId === tree.id)
  const alone = own.filter(amphora => judgeSilence(amphora, liveness, timing) === 'alone')
  return { ...facts, restartsLeft: left, silentAlone: new Set(alone.map(({ amphoraId }) => amphoraId)) }
}

/** @returns the fault to report if the error persists; null if another observation would not help */
function staleObservationFault(error: unknown): ProvisioningFault | null {
  if (error instanceof StaleObservation) return error.fault
  if (error instanceof AgentUnreachable) {
    return new ProvisioningFault('amphora-unreachable', 'An amphora stopped responding while it was being configured.')
  }
  if (error instanceof AgentIncompatible) return new ProvisioningFault('agent-incompatible', error.message)
  return null
}
