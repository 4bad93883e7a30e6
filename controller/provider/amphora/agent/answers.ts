import * as z from 'zod'
import type { AgentError, ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import { compatibility } from '../../../../amphora-agent/protocol/version.js'

export type AgentVerb = keyof ResultOf

const count = z.int().nonnegative()
const word = z.string().max(1000)
/** A tool's output: stored as a fault, logged and shown to tenants, so it is truncated. */
const words = z.string().transform(text => text.slice(0, 10_000))

const missing = z
  .array(z.object({ ref: word, reason: word }))
  .max(4000)
  .optional()

const trialSeconds = z.number().positive().max(300)

const hello = z.object({
  turn: count.optional(),
  agentVersion: word,
  protocolVersion: count,
  bundle: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional(),
  onTrial: z.boolean().optional(),
  trialSeconds: trialSeconds.optional(),
  failedUpgrade: z.object({ sha256: word, output: words }).optional(),
  bootId: word,
  haproxyVersion: word,
  keepalivedVersion: word,
  appliedGeneration: count,
  appliedSha256: word.nullable(),
  holdsVip: z.boolean().optional(),
  limits: z
    .object({ openFiles: z.int().positive(), memoryBytes: z.int().positive(), flows: z.int().positive().optional() })
    .optional(),
  drain: z.object({ ended: z.boolean(), cut: count }).nullable().default(null),
  leavingSeconds: count.optional(),
  answersMetrics: z.boolean().optional(),
  balancesDatagrams: z.boolean().optional(),
  missing,
  credential: z.object({ scope: word, seconds: count }).nullable().optional(),
})

const apply = z.object({
  appliedGeneration: count,
  appliedSha256: word,
  transition: z.enum(['unchanged', 'runtime', 'reload', 'start', 'stop']),
  reason: words,
  milliseconds: z.number().nonnegative(),
  missing,
})

const status = hello.extend({
  haproxy: z.object({ running: z.boolean(), pid: count.nullable(), workers: count }),
  datagramListeners: count.optional(),
  interfaces: z.array(z.object({ name: word, mac: word, addresses: z.array(word) })),
  uptimeSeconds: z.number().nonnegative(),
})

const done = z.object({})

const logs = z.object({ lines: z.array(z.string()) })

/** An amphora's answers are untrusted input: it carries tenants' traffic and may be compromised. */
export const resultSchemas: { [V in AgentVerb]: z.ZodType<ResultOf[V]> } = {
  hello,
  apply,
  lend: done,
  proof: done,
  announce: done,
  handover: z.object({ tables: z.enum(['none', 'all', 'missing']).optional() }),
  drain: done,
  become: done,
  forward: done,
  survey: z.object({ found: z.array(word).max(1000) }),
  status,
  logs,
  upgrade: z.object({ trialSeconds: trialSeconds.default(30) }),
}

const introduction = z.object({ agentVersion: word.default('?'), protocolVersion: count })

/** Who speaks a protocol that this controller does not. */
export type Foreigner = z.output<typeof introduction> & { is: 'too-old' | 'too-new' }

/** Judges an answer to `hello` or `status` before it is read: another protocol's may look different. */
export function foreigner(result: unknown): Foreigner | null {
  const introduced = introduction.safeParse(result)
  const is = introduced.success ? compatibility(introduced.data.protocolVersion) : 'compatible'
  return introduced.success && is !== 'compatible' ? { ...introduced.data, is } : null
}

const errorSchema: z.ZodType<AgentError> = z.object({
  code: z.enum([
    'malformed',
    'stale-generation',
    'stale-fence',
    'invalid-configuration',
    'interface-missing',
    'rolled-back',
    'upgrade-refused',
    'internal',
  ]),
  message: words,
  details: words,
})

export const answerSchema = z.discriminatedUnion('ok', [
  z.object({ id: z.int(), ok: z.literal(true), result: z.unknown() }),
  z.object({ id: z.int(), ok: z.literal(false), error: errorSchema }),
])

/** Larger than any legitimate answer; the largest is 5,000 log lines. */
export const MAX_ANSWER = 8 * 1024 * 1024
