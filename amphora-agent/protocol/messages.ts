import { z } from 'zod'
import { desiredSchema } from './desired.js'
import { type AmphoraDrain, handoverSchema, type TablesTaken } from './handover.js'

/**
 * The conversation between controller and agent, over the agent's unix socket reached through SSH: frames of a 4-byte big-endian length
 * and that many bytes of JSON, at most MAX_FRAME. Requests carry an id; answers carry the same id and may come in any order.
 */
export const MAX_FRAME = 32 * 1024 * 1024

export const AGENT_SOCKET = '/run/krater/agent.sock'

export const requestSchema = z.discriminatedUnion('verb', [
  z.strictObject({ id: z.int(), verb: z.literal('hello') }),
  z.strictObject({ id: z.int(), verb: z.literal('apply'), desired: desiredSchema }),
  /** Neighbours are told where the VIPs are that it holds. An agent that does not know this answers `malformed`. */
  z.strictObject({ id: z.int(), verb: z.literal('announce') }),
  /** Sets up this amphora's part in moving the VIPs to or from another one. */
  z.strictObject({ id: z.int(), verb: z.literal('handover'), handover: handoverSchema }),
  /** No new connections; those under way end within so many seconds. It never serves again. */
  z.strictObject({ id: z.int(), verb: z.literal('drain'), seconds: z.int().min(0).max(3_600) }),
  z.strictObject({ id: z.int(), verb: z.literal('status') }),
  z.strictObject({ id: z.int(), verb: z.literal('logs'), lines: z.int().min(1).max(5000) }),
])

export type Request = z.output<typeof requestSchema>

/** How an accepted desired state took effect. */
export type Transition = 'unchanged' | 'runtime' | 'reload' | 'start' | 'stop'

/** What the machine gives to HAProxy. */
export type MachineLimits = {
  /** Most open files of one program. */
  openFiles: number
  memoryBytes: number
}

export type HelloResult = {
  agentVersion: string
  protocolVersion: 1
  bootId: string
  haproxyVersion: string
  keepalivedVersion: string
  appliedGeneration: number
  appliedSha256: string | null
  /** Now, of a pair as well. An older agent does not tell. */
  holdsVip?: boolean | undefined
  /** An older agent does not tell. */
  limits?: MachineLimits | undefined
  /** Null unless it was asked to drain. */
  drain: AmphoraDrain | null
  /** For how long there may still be requests to servers that were removed, of any pool; 0 when there are none. An older agent does not tell. */
  leavingSeconds?: number | undefined
}

export type ApplyResult = {
  appliedGeneration: number
  appliedSha256: string
  transition: Transition
  /** Why a reload was needed; empty unless the transition is a reload. */
  reason: string
  milliseconds: number
}

export type StatusResult = HelloResult & {
  haproxy: { running: boolean; pid: number | null; workers: number }
  interfaces: { name: string; mac: string; addresses: string[] }[]
  uptimeSeconds: number
}

export type LogsResult = { lines: string[] }

/** Of one that takes over, and of an agent that knows how to. */
export type HandoverResult = { tables?: TablesTaken | undefined }

/** Nothing but that it was done. */
export type DoneResult = Record<never, never>

export type ResultOf = {
  hello: HelloResult
  apply: ApplyResult
  announce: DoneResult
  handover: HandoverResult
  drain: DoneResult
  status: StatusResult
  logs: LogsResult
}

/** Why a request was not carried out. `details` holds a tool's own words. */
export type AgentError = {
  code:
    | 'malformed'
    | 'stale-generation'
    | 'stale-fence'
    | 'invalid-configuration'
    | 'interface-missing'
    | 'rolled-back'
    | 'internal'
  message: string
  details: string
}

/** A request that failed for a reason that its sender should read. */
export class AnswerError extends Error {
  constructor(readonly answer: AgentError) {
    super(`${answer.code}: ${answer.message}`)
    this.name = 'AnswerError'
  }
}

export type Answer =
  | { id: number; ok: true; result: ResultOf[keyof ResultOf] }
  | { id: number; ok: false; error: AgentError }
