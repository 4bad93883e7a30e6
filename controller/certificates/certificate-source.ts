import type { RequestedReferences } from '../../x509/material/reference.js'

/** `reason` is a clause that the caller may see. */
export type BadReference = { ref: string; reason: string }

/** The unusable references, each once. Pure. */
export function badReferencesIn(verdicts: readonly { ref: string; wrong: string | null }[]): BadReference[] {
  const bad = new Map<string, string>()
  for (const { ref, wrong } of verdicts) if (wrong !== null && !bad.has(ref)) bad.set(ref, wrong)
  return [...bad].map(([ref, reason]) => ({ ref, reason }))
}

/** Whose request it is: the token, its user and its project, or `` without one. */
export type Requester = { token: string; project: string; user: string }

/** Checks certificates of listeners and pools. All that the load-balancing API knows of the key manager. */
export type CertificateSource = {
  /**
   * Checks that the caller may use each reference, and that it holds what it should. Gives the load balancer lasting
   * access. Keeps nothing of what it read.
   * @param requester projects take turns
   * @param loadBalancerId of the load balancer that is about to use them
   * @returns the unusable references, each once, in the order of the request
   * @throws ApiError 400 when there are too many, 503 with Retry-After when the check cannot be made now
   */
  check: (
    requester: Requester,
    loadBalancerId: string,
    requested: RequestedReferences,
  ) => Promise<readonly BadReference[]>
  close: () => void
}
