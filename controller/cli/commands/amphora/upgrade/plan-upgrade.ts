/** An amphora that may be upgraded. */
export type Candidate = {
  id: string
  status: string
  /** Null in the warm pool. */
  loadBalancerId: string | null
  loadBalancerName: string | null
  /** It had the VIP at its last heartbeat. */
  holdsVip: boolean
  /** It was marked for replacement, in this generation of its load balancer; null if it was not. */
  replaceGeneration: number | null
  /** Null if its agent has not been asked yet. */
  agentVersion: string | null
  /** SHA-256 of its agent; null if that cannot be upgraded in place, or has not been asked yet. */
  agentBundle: string | null
  /** The agent that it is about to get in place. */
  upgradeTo: string | null
  driver: string
  imageTag: string | null
  imageId: string | null
  /** Name of the controller host to which its machine is bound; null if it is this one, or none. */
  elsewhere: string | null
}

/** What amphorae should have. */
export type Target = {
  /** SHA-256 of the agent. */
  bundle: string
  /** Id of the newest image that a machine like this one would run; null if it would run none. */
  newestImage: (amphora: Candidate) => string | null
}

/** In place, only the agent is replaced, and traffic is not touched; otherwise another amphora takes over, by a planned failover. */
export type Way = 'in place' | 'replace'

export type Upgrade = { amphora: Candidate; way: Way; why: string }

export type UpgradePlan = {
  /** In this order: first those without traffic, then those without a VIP. */
  upgrades: Upgrade[]
  current: Candidate[]
  /** Those that cannot be upgraded, and why. */
  left: { amphora: Candidate; why: string }[]
  /** How many are bound to other controller hosts, by their names: each host has images of its own. */
  elsewhere: ReadonlyMap<string, number>
}

/** The first eight digits of a hash tell agents and images apart. */
export const short = (hash: string): string => hash.slice(0, 8)

/** Decides which amphorae are upgraded, how, and in which order. Amphorae that come or go are not considered. Pure. */
export function planUpgrade(candidates: readonly Candidate[], target: Target): UpgradePlan {
  const elsewhere = new Map<string, number>()
  const plan: UpgradePlan = { upgrades: [], current: [], left: [], elsewhere }
  for (const amphora of candidates) {
    const isBooting = amphora.status === 'BOOTING' && amphora.upgradeTo === target.bundle
    if (!['READY', 'ALLOCATED'].includes(amphora.status) && !isBooting) continue
    const { replaceGeneration, agentVersion, agentBundle, imageId, driver } = amphora
    if (amphora.elsewhere !== null) {
      elsewhere.set(amphora.elsewhere, (elsewhere.get(amphora.elsewhere) ?? 0) + 1)
      continue
    }
    const image = target.newestImage(amphora)
    const upgrade = (way: Way, why: string) => plan.upgrades.push({ amphora, way, why })
    const agent = `agent ${agentVersion ?? '?'}${agentBundle === null ? '' : ` (${short(agentBundle)})`}`
    if (replaceGeneration !== null) upgrade('replace', 'its replacement has begun')
    else if (image !== null && image !== imageId)
      upgrade('replace', `image ${imageId === null ? 'none' : short(imageId)}`)
    else if (agentBundle === target.bundle) plan.current.push(amphora)
    else if (agentBundle !== null) upgrade('in place', agent)
    else if (agentVersion === null) plan.left.push({ amphora, why: 'its agent has not been asked yet' })
    else if (image === null) upgrade('replace', `${agent}, which cannot be upgraded in place`)
    else
      plan.left.push({
        amphora,
        why: `${agent} cannot be upgraded in place, and the newest image of ${driver} has the same`,
      })
  }
  plan.upgrades.sort((one, other) => rank(one.amphora) - rank(other.amphora))
  return plan
}

function rank({ loadBalancerId, holdsVip }: Candidate): number {
  if (loadBalancerId === null) return 0
  return holdsVip ? 2 : 1
}

/**
 * Which upgrades begin now. Amphorae of one load balancer take turns. Pure.
 * @param waiting in their order
 * @param running upgrades that have begun and not ended
 */
export function nextUpgrades(waiting: readonly Upgrade[], running: readonly Upgrade[], atOnce: number): Upgrade[] {
  const busy = new Set(running.flatMap(({ amphora }) => amphora.loadBalancerId ?? []))
  const next: Upgrade[] = []
  for (const upgrade of waiting) {
    if (running.length + next.length >= atOnce) break
    const { loadBalancerId } = upgrade.amphora
    if (loadBalancerId !== null && busy.has(loadBalancerId)) continue
    if (loadBalancerId !== null) busy.add(loadBalancerId)
    next.push(upgrade)
  }
  return next
}

/** What the database says of an upgrade that has begun; the amphora or its load balancer may be gone. */
export type Progress = {
  status: string | null
  agentBundle: string | null
  upgradeTo: string | null
  upgradeFault: { bundle: string; text: string } | null
  /** Of its load balancer. */
  appliedGeneration: number | null
  faultGeneration: number | null
  faultText: string | null
}

/**
 * Whether an upgrade has ended. Pure.
 * @param generation of the load balancer that a replacement needs; null otherwise
 * @returns why it failed, in case it did
 */
export function judgeProgress(
  { way, amphora }: Upgrade,
  generation: number | null,
  progress: Progress,
  bundle: string,
): 'under way' | 'done' | { failed: string } {
  const { status, agentBundle, upgradeTo, upgradeFault, appliedGeneration, faultGeneration, faultText } = progress
  if (way === 'in place') {
    if (status === null) return 'done'
    if (upgradeFault?.bundle === bundle) return { failed: upgradeFault.text }
    return agentBundle === bundle && upgradeTo === null && status !== 'BOOTING' ? 'done' : 'under way'
  }
  const isGone = status === null || (status === 'PENDING_DELETE' && amphora.loadBalancerId !== null)
  if (isGone && (appliedGeneration ?? Number.POSITIVE_INFINITY) >= (generation ?? 0)) return 'done'
  if (faultText !== null && (faultGeneration ?? 0) >= (generation ?? 0)) return { failed: faultText }
  return 'under way'
}
