import type { LoadBalancerTree } from '../load-balancer/tree/tree.js'
import type { Claim } from '../queue/claim.js'

/** Something a provider did to an amphora's machine; recorded in the load balancer's history. */
export type Action = {
  amphora_id: string
  /**
   * `replugged`: a network interface that was missing or down on the host works again. `upgraded`: its agent was replaced
   * in place.
   */
  action: 'created' | 'restarted' | 'replugged' | 'configured' | 'upgraded' | 'deleted'
  /** How the configuration took effect, such as `runtime` or `reload`. */
  how?: string
  /** Why, for example, a reload was needed. */
  reason?: string
}

/**
 * Implements load balancers. This is all that the API and the worker know of a provider. The worker calls it while it
 * holds the claim.
 */
export type Provider = {
  name: string
  description: string
  /**
   * Brings the load balancer from any state to the one in the tree. Returns once all of `tree.generation` is in
   * effect, or, for a tree under deletion, once nothing of it is left. Safe to repeat, to interrupt and to resume
   * after a crash.
   * @param signal aborted when the claim is lost or the worker stops: starts nothing more and throws ClaimLost
   * @param note called after each completed action, even if a later one fails
   * @throws ProvisioningFault with a message for the owner, ClaimLost; other errors are reported as internal faults
   */
  converge: (
    claim: Claim,
    tree: LoadBalancerTree,
    signal: AbortSignal,
    note?: (action: Action) => void,
  ) => Promise<void>
}

/** Another worker has claimed the load balancer, or this one is stopping. The next holder continues the work. */
export class ClaimLost extends Error {
  constructor(message = 'The claim is no longer held') {
    super(message)
    this.name = 'ClaimLost'
  }
}

/** Why a load balancer cannot reach its desired state. The message is shown to its owner. */
export class ProvisioningFault extends Error {
  constructor(
    /** Stable and machine-readable, such as `no-address-left` or `configuration-refused`. */
    readonly code: string,
    message: string,
    /** What operators read in the log besides. */
    options?: { cause?: unknown },
  ) {
    super(message, options)
    this.name = 'ProvisioningFault'
  }
}

/** All of the desired state is in effect, but something that it refers to cannot be had; see ProvisioningFault. */
export class AppliedWithFault extends ProvisioningFault {}
