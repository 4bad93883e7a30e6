import { ApiError } from '../../http/errors.js'
import type { Fault } from '../../http/fault.js'

/** Types of problems, after `urn:ietf:params:acme:error:`, with the status of each. */
const STATUSES = {
  accountDoesNotExist: 400,
  alreadyReplaced: 409,
  alreadyRevoked: 400,
  badCSR: 400,
  badNonce: 400,
  badPublicKey: 400,
  badRevocationReason: 400,
  badSignatureAlgorithm: 400,
  connection: 400,
  dns: 400,
  externalAccountRequired: 403,
  incorrectResponse: 403,
  invalidContact: 400,
  malformed: 400,
  orderNotReady: 403,
  rateLimited: 429,
  rejectedIdentifier: 400,
  serverInternal: 500,
  tls: 400,
  unauthorized: 403,
  unsupportedContact: 400,
  unsupportedIdentifier: 400,
} as const

export type ProblemType = keyof typeof STATUSES

export type Identifier = { type: 'dns' | 'ip'; value: string }

/** A problem as stored with a challenge, and as part of another one. */
export type Problem = { type: ProblemType; detail: string; identifier?: Identifier }

export type ProblemDocument = {
  type: string
  detail: string
  status?: number
  identifier?: Identifier
  subproblems?: readonly ProblemDocument[]
}

export const PROBLEM_TYPE = 'application/problem+json'

const urnOf = (type: ProblemType): string => `urn:ietf:params:acme:error:${type}`

/** The JSON of a problem (RFC 7807). */
export const problemDocument = ({ type, detail, identifier }: Problem): ProblemDocument => ({
  type: urnOf(type),
  detail,
  status: STATUSES[type],
  ...(identifier !== undefined && { identifier }),
})

/** Refuses an ACME request. */
export class AcmeProblem extends ApiError {
  constructor(
    readonly type: ProblemType,
    detail: string,
    readonly more: {
      status?: number
      headers?: Readonly<Record<string, string>>
      subproblems?: readonly Problem[]
      /** Further members of the document. */
      members?: Readonly<Record<string, unknown>>
    } = {},
  ) {
    super(more.status ?? STATUSES[type], detail, more.headers ?? {})
    this.name = 'AcmeProblem'
  }
}

export const malformed = (detail: string) => new AcmeProblem('malformed', detail)

/** Types of problems for errors that are not ACME's own, by their status. */
const TYPE_OF_STATUS: Readonly<Record<number, ProblemType>> = {
  401: 'unauthorized',
  403: 'unauthorized',
  429: 'rateLimited',
}

/** The body of any error answer of the ACME server. */
export function presentProblem({ status, message }: Fault, error: unknown): unknown {
  if (!(error instanceof AcmeProblem)) {
    const type = TYPE_OF_STATUS[status] ?? (status < 500 ? 'malformed' : 'serverInternal')
    return { type: urnOf(type), detail: message, status }
  }
  const { subproblems = [], members = {} } = error.more
  return {
    type: urnOf(error.type),
    detail: message,
    status,
    ...(subproblems.length > 0 && { subproblems: subproblems.map(problemDocument) }),
    ...members,
  }
}
