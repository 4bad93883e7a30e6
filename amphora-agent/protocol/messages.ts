import * as z from 'zod'
import { bootSchema } from './boot.js'
import { desiredSchema } from './desired.js'
import { forwardingSchema } from './forwarding.js'
import { type AmphoraDrain, handoverSchema, type TablesTaken } from './handover.js'
import { credentialSchema, type HeldCredential } from './key-manager/credential.js'

/**
 * The protocol between controller and agent, over the agent's unix socket reached through SSH. A frame is a 4-byte
 * big-endian length and that many bytes of JSON, at most MAX_FRAME. Answers carry the id of their request and may
 * arrive in any order.
 */
export const MAX_FRAME = 32 * 1024 * 1024

export const AGENT_SOCKET = '/run/krater/agent.sock'

export const requestSchema = z.discriminatedUnion('verb', [
  z.strictObject({ id: z.int(), verb: z.literal('hello') }),
  z.strictObject({ id: z.int(), verb: z.literal('apply'), desired: desiredSchema }),
  /** What it reads TLS material with from now on, instead of a key of its own. Older agents answer `malformed`. */
  z.strictObject({ id: z.int(), verb: z.literal('lend'), credential: credentialSchema }),
  /**
   * What the controller's last handshakes with this amphora's listeners showed, for its metrics: how many got another
   * certificate or chain than they should. Older agents answer `malformed`.
   */
  z.strictObject({ id: z.int(), verb: z.literal('proof'), mismatches: z.int().min(0) }),
  /** Announces the VIPs it holds to neighbours. An agent that does not know this verb answers `malformed`. */
  z.strictObject({ id: z.int(), verb: z.literal('announce') }),
  /** Sets up this amphora's part in moving the VIPs to or from another amphora. */
  z.strictObject({ id: z.int(), verb: z.literal('handover'), handover: handoverSchema }),
  /** Stops accepting connections; closes open ones after this many seconds. The amphora never serves again. */
  z.strictObject({ id: z.int(), verb: z.literal('drain'), seconds: z.int().min(0).max(3_600) }),
  /**
   * On an enrolled host only: what it becomes. It answers, ends everything that it runs, is wiped, and comes back as
   * that. Does nothing if that turn has begun already.
   */
  z.strictObject({ id: z.int(), verb: z.literal('become'), boot: bootSchema }),
  /** On an enrolled host only: where its heartbeats and its requests for TLS material go from now on. */
  z.strictObject({ id: z.int(), verb: z.literal('forward'), forwarding: forwardingSchema }),
  /** Looks for anything that an amphora leaves behind. */
  z.strictObject({ id: z.int(), verb: z.literal('survey') }),
  z.strictObject({ id: z.int(), verb: z.literal('status') }),
  /**
   * Replaces the agent by another one, without a change of what it serves. It is answered once that one has been
   * checked; then the agent restarts, and `hello` says how it went. Only agents that report `bundle` know this verb.
   */
  z.strictObject({
    id: z.int(),
    verb: z.literal('upgrade'),
    /** Of the bundle, in hexadecimal. */
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
    /** An ES module in base64. */
    bundle: z.string(),
  }),
  z.strictObject({ id: z.int(), verb: z.literal('logs'), lines: z.int().min(1).max(5000) }),
])

export type Request = z.output<typeof requestSchema>

/** Where a relayed connection goes: a VIP, or, without an address, this amphora's own listener on that port. */
export const relayRequestSchema = z.strictObject({
  address: z.union([z.ipv4(), z.ipv6()]).nullable(),
  port: z.int().min(1).max(65535),
  listenerId: z.uuid(),
})

export type RelayRequest = z.output<typeof relayRequestSchema>

/** How an accepted desired state took effect. */
export type Transition = 'unchanged' | 'runtime' | 'reload' | 'start' | 'stop'

/** What the machine allows HAProxy and the kernel. */
export type MachineLimits = {
  /** Limit of open files per process. */
  openFiles: number
  memoryBytes: number
  /** Entries of the kernel's connection tracking. Older agents omit it. */
  flows?: number | undefined
}

/** An upgrade that did not come up: the hash of its bundle, and the last that it printed. */
export type FailedUpgrade = { sha256: string; output: string }

/** What the key manager did not give out, and why, as a clause. What it led to before stays in use. */
export type MissingMaterial = { ref: string; reason: string }

export type HelloResult = {
  /** On an enrolled host, its turn; see boot.ts. */
  turn?: number | undefined
  agentVersion: string
  /** See version.ts. */
  protocolVersion: number
  /** SHA-256 of the agent's own file, in hexadecimal. Older agents, which cannot be upgraded in place, omit it. */
  bundle?: string | undefined
  /** Whether the former agent comes back unless this one answers soon. */
  onTrial?: boolean | undefined
  /** Seconds in which a new agent must answer on this machine. */
  trialSeconds?: number | undefined
  /** The latest upgrade, if this agent is back because that one did not come up. */
  failedUpgrade?: FailedUpgrade | undefined
  bootId: string
  haproxyVersion: string
  keepalivedVersion: string
  appliedGeneration: number
  appliedSha256: string | null
  /** Whether it holds a VIP now, also in a pair. Older agents omit it. */
  holdsVip?: boolean | undefined
  /** Older agents omit it. */
  limits?: MachineLimits | undefined
  /** Null unless it was asked to drain. */
  drain: AmphoraDrain | null
  /** How long removed servers of any pool may still have connections; 0 if none do. Older agents omit it. */
  leavingSeconds?: number | undefined
  /** Whether it answers on METRICS_PORT. Older agents omit it. */
  answersMetrics?: boolean | undefined
  /** Whether it serves UDP and SCTP listeners. Older agents omit it. */
  balancesDatagrams?: boolean | undefined
  /** What it misses of the applied state; older agents, which cannot read TLS material, omit it. */
  missing?: MissingMaterial[] | undefined
  /** The credential it was lent, while it lasts. Older agents, which take none, omit it. */
  credential?: HeldCredential | null | undefined
}

export type ApplyResult = {
  appliedGeneration: number
  appliedSha256: string
  transition: Transition
  /** Why a reload was needed; empty for other transitions. */
  reason: string
  milliseconds: number
  /** Older agents omit it. */
  missing?: MissingMaterial[] | undefined
}

export type StatusResult = HelloResult & {
  haproxy: { running: boolean; pid: number | null; workers: number }
  /** UDP and SCTP listeners of the applied state, which need no HAProxy. Older agents omit it. */
  datagramListeners?: number | undefined
  interfaces: { name: string; mac: string; addresses: string[] }[]
  uptimeSeconds: number
}

export type LogsResult = { lines: string[] }

/** Set by an amphora that takes over; older agents omit it. */
export type HandoverResult = { tables?: TablesTaken | undefined }

/** How long the new agent has to answer before the former one comes back. The first agents omitted it: 30. */
export type UpgradeResult = { trialSeconds: number }

/** What there is that no empty machine has, as clauses; empty if there is nothing. */
export type SurveyResult = { found: string[] }

/** An empty result: the request was carried out. */
export type DoneResult = Record<never, never>

export type ResultOf = {
  hello: HelloResult
  apply: ApplyResult
  lend: DoneResult
  proof: DoneResult
  announce: DoneResult
  handover: HandoverResult
  drain: DoneResult
  become: DoneResult
  forward: DoneResult
  survey: SurveyResult
  status: StatusResult
  logs: LogsResult
  upgrade: UpgradeResult
}

/** Why a request failed. `details` holds the output of the tool that refused. */
export type AgentError = {
  code:
    | 'malformed'
    | 'stale-generation'
    | 'stale-fence'
    | 'invalid-configuration'
    | 'interface-missing'
    | 'rolled-back'
    | 'upgrade-refused'
    | 'internal'
  message: string
  details: string
}

/** A request that failed for a reason to report to its sender. */
export class AnswerError extends Error {
  constructor(readonly answer: AgentError) {
    super(`${answer.code}: ${answer.message}`)
    this.name = 'AnswerError'
  }
}

export type Answer =
  | { id: number; ok: true; result: ResultOf[keyof ResultOf] }
  | { id: number; ok: false; error: AgentError }
