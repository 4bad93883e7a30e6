import type { KeyObject } from 'node:crypto'
import type { CertificateRequest } from '../../../x509/certificate-request.js'
import type { DistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import type { RevocationReason } from '../../../x509/revocation-list.js'
import type { Actor } from '../audit/record.js'
import type { Service } from '../service.js'

/** What CA back ends work with; each adds its own settings. */
export type CaService = Service & {
  config: {
    /** URL where clients reach the API, for the URLs of revocation lists. */
    public_url?: string | undefined
  }
}

/** A certificate as its CA returns it. */
export type IssuedCertificate = {
  /** The CA that signed: the requested one, or the project's own CA below it. */
  caId: string
  /** PEM. */
  certificate: string
  /** PEM of the CAs between the certificate and the root, its issuer first; '' if the root signed it. */
  intermediates: string
  /** 32 hexadecimal digits. */
  serial: string
  subjectDn: string
  notAfter: Date
}

export type IssueOutcome =
  | { kind: 'issued'; issued: IssuedCertificate }
  /** The CA accepted the request; ask again later. */
  | { kind: 'pending'; seconds: number; message: string }
  /** The CA refuses for good; `reason` is for the tenant. */
  | { kind: 'rejected'; reason: string }
  /** The CA is unreachable, or cannot use its key now. `retryAfter` is the CA's own wish, in seconds. */
  | { kind: 'unavailable'; message: string; retryAfter?: number }

/** What a CA that takes several steps needs to know of a request. */
export type IssueDetails = {
  /** The same in each step: the id of the order, also for a renewal. */
  requestId: string
  /** PEM of the certificate that the new one replaces. */
  replaces: string | null
  /** Of this certificate only; by default the CA's. */
  validity: RequestedValidity | undefined
}

/** A CA's advice when to renew a certificate (RFC 9773). */
export type RenewalInfo = {
  /** Milliseconds since 1970; null if the CA has none at the moment. */
  window: { start: number; end: number } | null
  /** When to ask again. */
  againSeconds: number
}

/** A new CA, ready to be stored. */
export type NewAuthority = {
  id: string
  /** Null if every project may use it. */
  projectId: string | null
  creatorId: string | null
  parentId: string | null
  pluginName: string
  pluginCaId: string
  name: string
  description: string | null
  subjectDn: string
  certificate: string
  /** PEM of its certificate and all above it, including the root. */
  chain: string
  /** When its certificate expires. */
  expiration: Date
  serial: string
  /** Null if the back end does not hand out its keys. */
  key: KeyObject | null
}

export type SubordinateRequest = {
  projectId: string
  creatorId: string
  parentId: string
  name: string
  description: string | null
  subject: DistinguishedName
}

export type RevokeOutcome = 'revoked' | 'already revoked' | 'unknown'

/** The validity that an order asks for; null leaves an end to the CA, which never exceeds its own limits. */
export type RequestedValidity = { notBefore: Date | null; notAfter: Date | null }

/** Signs certificates: the internal CA or an external one. */
export type CaBackend = {
  /** The plugin_name of its CAs. */
  name: string
  /** Registers its CAs; idempotent, also when several processes run it at once. */
  prepare: () => Promise<void>
  /** Whether a certificate may take several calls of `issue`, all of which need the same key. */
  takesSteps: boolean
  /** @param projectId owner of the order */
  issue: (
    caId: string,
    projectId: string,
    request: CertificateRequest,
    signal: AbortSignal,
    details: IssueDetails,
  ) => Promise<IssueOutcome>
  /** The CA's advice about a certificate; null if it has none. Null if the back end never has any. */
  renewalInfo: ((pem: string, signal: AbortSignal) => Promise<RenewalInfo | null>) | null
  /** Removes what abandoned orders left; null if they leave nothing. Runs now and then. */
  sweep: (() => Promise<void>) | null
  /**
   * Null if the back end creates no CAs for projects. Stores nothing.
   * @throws InvalidX509 if the parent does not allow such a CA
   */
  createSubordinate: ((request: SubordinateRequest) => Promise<NewAuthority>) | null
  /** DER of the CA's current revocation list; null if there is none. */
  revocationList: (caId: string) => Promise<Buffer | null>
  /**
   * @param actor for the audit record; without it, an operator on this machine
   * @throws CaFault
   */
  revoke: (caId: string, serial: string, reason: RevocationReason, actor?: Actor) => Promise<RevokeOutcome>
}
