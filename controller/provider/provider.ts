import type { LoadBalancerTree } from '../load-balancer/tree/tree.js'
import type { Claim } from '../queue/claim.js'

/** One thing that a provider did to a machine for a load balancer, for the load balancer's history. */
export type Action = {
  amphora_id: string
  /** `replugged`: a network interface that was gone or down on the host's side stands again. */
  action: 'created' | 'restarted' | 'replugged' | 'configured' | 'deleted'
  /** How a configuration took effect: by runtime commands, a reload ... */
  how?: string
  /** Why it took the dearer way. */
  reason?: string
}

/**
 * What carries load balancers out. The API knows a provider only by this; the worker calls it while it holds the claim.
 */
export type Provider = {
  name: string
  description: string
  /**
   * Makes the world agree with the tree, from wherever it stands; returns when all of `tree.generation` is in effect (for a tree under
   * deletion: when nothing of it is left). Safe to repeat, to interrupt and to run on after a crash.
   * @param signal aborted when the claim is lost or the worker stops: nothing new is begun then, and ClaimLost is thrown
   * @param note told of each action once it is done, also when the rest fails
   * @throws ProvisioningFault for what the owner should read, ClaimLost; anything else is reported as an internal fault
   */
  converge: (
    claim: Claim,
    tree: LoadBalancerTree,
    signal: AbortSignal,
    note?: (action: Action) => void,
  ) => Promise<void>
}

/** The load balancer belongs to another worker by now, or this one is stopping: whatever was under way is left to the next holder. */
export class ClaimLost extends Error {
  constructor(message = 'The claim is no longer held') {
    super(message)
    this.name = 'ClaimLost'
  }
}

/** Why a load balancer could not be brought to its desired state, in words for its owner. */
export class ProvisioningFault extends Error {
  constructor(
    /** Stable, for programs: `no-address-left`, `configuration-refused`, `amphora-unreachable` ... */
    readonly code: string,
    message: string,
  ) {
    super(message)
    this.name = 'ProvisioningFault'
  }
}
