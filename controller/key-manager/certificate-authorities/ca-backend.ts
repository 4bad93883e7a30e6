import type { KeyObject } from 'node:crypto'
import type { CertificateRequest } from '../../x509/certificate-request.js'
import type { DistinguishedName } from '../../x509/encoding/distinguished-name.js'
import type { RevocationReason } from '../../x509/revocation-list.js'
import type { Service } from '../service.js'

/** What CAs work with. A back end with settings of its own adds them. */
export type CaService = Service & {
  config: {
    /** Where clients reach the API, for the URLs of revocation lists. */
    public_url?: string | undefined
  }
}

/** A certificate as its CA hands it out. */
export type IssuedCertificate = {
  /** The CA that has signed: the one that was asked, or the project's own below it. */
  caId: string
  /** As PEM. */
  certificate: string
  /** PEM of what a TLS server sends after it: the CAs between it and the root, its own first; '' when the root itself has signed. */
  intermediates: string
  /** 32 hexadecimal digits. */
  serial: string
  subjectDn: string
  notAfter: Date
}

export type IssueOutcome =
  | { kind: 'issued'; issued: IssuedCertificate }
  /** The CA has taken the request and wants to be asked again. */
  | { kind: 'pending'; seconds: number; message: string }
  /** The CA will never sign this; `reason` is for the tenant. */
  | { kind: 'rejected'; reason: string }
  /** The CA cannot be reached, or cannot use its key, at the moment. */
  | { kind: 'unavailable'; message: string }

/** A new CA as its back end has made it, to be stored. */
export type NewAuthority = {
  id: string
  /** Null for a CA that every project may use. */
  projectId: string | null
  creatorId: string | null
  parentId: string | null
  pluginName: string
  pluginCaId: string
  name: string
  description: string | null
  subjectDn: string
  certificate: string
  /** PEM of its certificate and those above it up to the root. */
  chain: string
  /** When its certificate ends. */
  expiration: Date
  serial: string
  /** Null for a back end that keeps its keys to itself. */
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

/** What signs certificates: the internal CA, or one that somebody else runs. */
export type CaBackend = {
  /** The plugin_name of its CAs. */
  name: string
  /** Makes its CAs known; safe to repeat and to run in several processes at once. */
  prepare: () => Promise<void>
  /** @param projectId whose order it is */
  issue: (caId: string, projectId: string, request: CertificateRequest, signal: AbortSignal) => Promise<IssueOutcome>
  /**
   * Null when it makes no CAs for projects. Stores nothing.
   * @throws InvalidX509 when the parent does not allow such a CA
   */
  createSubordinate: ((request: SubordinateRequest) => Promise<NewAuthority>) | null
  /** DER of the CA's revocation list in force; null when there is none. */
  revocationList: (caId: string) => Promise<Buffer | null>
  revoke: (caId: string, serial: string, reason: RevocationReason) => Promise<RevokeOutcome>
}
