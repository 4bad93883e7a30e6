import * as z from 'zod'

/** What a probe asks of one address. It resolves no name and follows no redirect. */
const probeJob = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('http'),
    address: z.string(),
    port: z.number(),
    tls: z.boolean(),
    /** Of the Host header and SNI. */
    host: z.string(),
    path: z.string(),
  }),
  z.object({ kind: z.literal('tls-alpn'), address: z.string(), port: z.number(), serverName: z.string() }),
])

export type ProbeJob = z.output<typeof probeJob>
export type HttpJob = Extract<ProbeJob, { kind: 'http' }>
export type TlsJob = Extract<ProbeJob, { kind: 'tls-alpn' }>

const text = (length: number) => z.string().transform(value => value.slice(0, length))

/** What it found, with bounds on everything that the other side wrote. */
export const probeResult = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('http'), status: z.number(), location: text(2000).nullable(), body: text(4096) }),
  z.object({
    kind: z.literal('tls-alpn'),
    /** Negotiated by ALPN; null for none. */
    protocol: text(100).nullable(),
    names: z.array(z.object({ kind: z.enum(['dns', 'ip', 'email', 'uri']), value: text(300) })).max(100),
    /** Hexadecimal content of a critical acmeIdentifier extension; null without one. */
    digest: text(200).nullable(),
  }),
  /** `reason` is for the tenant: the system's code or a short text. */
  z.object({ kind: z.literal('failed'), fault: z.enum(['connection', 'tls', 'answer']), reason: text(300) }),
])

export type ProbeResult = z.output<typeof probeResult>

export const failed = (fault: 'connection' | 'tls' | 'answer', reason: string): ProbeResult => ({
  kind: 'failed',
  fault,
  reason,
})

export const parseProbeJob = (value: unknown): ProbeJob => probeJob.parse(value)
