/** References of one request, each to what it must hold. The same one may be named several times. */
export type RequestedReferences = {
  /** Each to a certificate with its private key. */
  certificates: readonly string[]
  /** Each to certificates of authorities. */
  authorities: readonly string[]
  /** Each to a revocation list, with the reference to the authority that must have signed it. */
  revocationLists: readonly { ref: string; authority: string }[]
}

/** `reason` is a clause that may be shown to the caller. */
export type BadReference = { ref: string; reason: string }

/** Who asks: the token with its user, and with its project or `` when it has none. */
export type Asking = { token: string; project: string; user: string }

/** Where the certificates are to which listeners and pools refer: all that the load-balancing API knows of it. */
export type CertificateSource = {
  /**
   * Whether the caller may use what is referred to, our own service user can read it, and it is what it should be. Lets the service user
   * read it from now on. Nothing of it is kept.
   * @param asking whose references they are; projects take turns
   * @returns those that are not good, in the order of the request, each once
   * @throws ApiError 400 when there are too many, 503 with Retry-After when it cannot be told at the moment
   */
  check: (asking: Asking, requested: RequestedReferences) => Promise<readonly BadReference[]>
  close: () => void
}
