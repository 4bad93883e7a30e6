import { setTimeout as sleep } from 'node:timers/promises'
import { readHearings } from '../../../health-manager/hearings.js'
import { silenceOf } from '../../../health-manager/silence.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import type { Port } from '../../../network/driver.js'
import type { Claim } from '../../../queue/claim.js'
import { isHeld } from '../../../queue/claim.js'
import { type Action, ClaimLost, ProvisioningFault } from '../../provider.js'
import { AgentUnreachable } from '../agent/errors.js'
import type { Observed } from '../plan/observation.js'
import { type PlanFacts, plan } from '../plan/plan.js'
import type { Step } from '../plan/step.js'
import type { HaproxySettings } from '../rendering/facts.js'
import { StaleObservation } from './apply.js'
import { type Acting, type AmphoraParts, runStep } from './executors.js'
import { observe, type Remembered } from './observe.js'
import { restartsLeft } from './restart-limiter.js'

export type ConvergeOptions = {
  parts: AmphoraParts
  staleAfterSeconds: number
  replaceAfterSeconds: number
  beatIntervalSeconds: number
  haproxy: HaproxySettings
  /** What this process saw when it last settled this load balancer. */
  remembered: Remembered | null
  /** Told of what was done, for the history. */
  note: (action: Action) => void
}

/** Making an amphora takes four rounds; more than this is a circle. */
const MOST_ROUNDS = 12
/** How often an amphora may turn out to differ from its observation. */
const MOST_SURPRISES = 2
const SURPRISE_PAUSE_MS = 200

/**
 * Observe, plan, act, and again, until a plan settles. Nothing depends on its memory: it may be stopped at any instruction, and any worker
 * may start it anew.
 * @returns what may be remembered of the world, or null when it has to be observed anew
 * @throws ProvisioningFault, ClaimLost
 */
export async function converge(
  options: ConvergeOptions,
  claim: Claim,
  tree: LoadBalancerTree,
  signal: AbortSignal,
): Promise<Observed | null> {
  const { parts, staleAfterSeconds, note } = options
  const made = new Map<string, Port>()
  const held = () => {
    if (signal.aborted || !isHeld(claim)) throw new ClaimLost()
  }
  let remembered = options.remembered
  let surprises = 0
  for (let round = 1; round <= MOST_ROUNDS; round++) {
    held()
    const observed = await observe({ parts, claim, tree, made }, remembered, staleAfterSeconds)
    const { stages, settles } = plan(tree, observed, await factsOf(options, claim, tree, observed))
    const steps = stages.flat()
    try {
      for (const stage of stages) await actTogether({ parts, claim, tree, observed, made, held, note }, stage)
      if (settles) return steps.every(step => step.kind === 'apply') ? observed : null
    } catch (error) {
      const fault = surpriseOf(error)
      if (fault === null) throw error
      surprises += 1
      if (surprises > MOST_SURPRISES) throw fault
      await sleep(SURPRISE_PAUSE_MS)
    }
    remembered = null
  }
  throw new ProvisioningFault('not-settling', `The desired state was not reached in ${MOST_ROUNDS} rounds.`)
}

/** All steps run to their end even when one fails, so that nothing is under way any more when the failure is told. */
async function actTogether(acting: Acting, stage: readonly Step[]): Promise<void> {
  const results = await Promise.allSettled(stage.map(step => runStep(acting, step)))
  const reasons = results.flatMap(result => (result.status === 'rejected' ? [result.reason as unknown] : []))
  if (reasons.length === 0) return
  throw reasons.find(reason => reason instanceof ClaimLost) ?? reasons[0]
}

async function factsOf(
  options: ConvergeOptions,
  claim: Claim,
  tree: LoadBalancerTree,
  observed: Observed,
): Promise<PlanFacts> {
  const { staleAfterSeconds, replaceAfterSeconds, haproxy } = options
  const facts = { fence: claim.fence, staleAfterSeconds, replaceAfterSeconds, haproxy }
  const isInNeed = observed.amphorae.some(
    ({ machine, agent, mismatchedSeconds }) =>
      machine === 'running' && (agent.state === 'unreachable' || mismatchedSeconds > replaceAfterSeconds),
  )
  if (!isInNeed) return { ...facts, restartsLeft: 0, silentAlone: new Set() }
  const { database, restartLimits } = options.parts
  const [left, hearings] = await Promise.all([
    restartsLeft(database, tree.projectId, restartLimits),
    readHearings(database),
  ])
  const rhythm = { beatInterval: options.beatIntervalSeconds, staleAfter: staleAfterSeconds }
  const own = hearings.filter(({ loadBalancerId }) => loadBalancerId === tree.id)
  const alone = own.filter(hearing => silenceOf(hearing, hearings, rhythm) === 'alone')
  return { ...facts, restartsLeft: left, silentAlone: new Set(alone.map(({ amphoraId }) => amphoraId)) }
}

/** @returns the fault that it becomes when it happens again and again, or null when it is no surprise */
function surpriseOf(error: unknown): ProvisioningFault | null {
  if (error instanceof StaleObservation) return error.fault
  if (error instanceof AgentUnreachable) {
    return new ProvisioningFault('amphora-unreachable', 'An amphora stopped answering while it was being configured.')
  }
  return null
}
