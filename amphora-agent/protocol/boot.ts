import * as z from 'zod'

/** Settings given to the amphora before its first start: BOOT_FILE, mode 0600, as JSON. */
export const bootSchema = z.strictObject({
  amphoraId: z.uuid(),
  /** 32 bytes in hexadecimal. */
  heartbeatKey: z.string().regex(/^[0-9a-f]{64}$/),
  heartbeatKeyId: z.int().min(0).max(255),
  /** Every beat is sent to all of them. IP addresses, without brackets. */
  healthManagers: z.array(z.strictObject({ host: z.union([z.ipv4(), z.ipv6()]), port: z.int().min(1).max(65535) })),
  beatIntervalSeconds: z.number().positive(),
  /** How to read TLS material; amphorae of earlier versions lack it. `certificate` and `privateKey` are PEM. */
  keyChannel: z
    .strictObject({
      endpoints: z.array(z.strictObject({ host: z.union([z.ipv4(), z.ipv6()]), port: z.int().min(1).max(65535) })),
      certificate: z.string(),
      privateKey: z.string(),
    })
    .optional(),
  /** What the amphora may use of its host, where that is less than all of it. Threads count as processes. */
  limits: z
    .strictObject({
      memoryBytes: z.int().positive(),
      processors: z.number().positive(),
      processes: z.int().positive(),
    })
    .partial()
    .optional(),
  /**
   * Present on an enrolled host, which becomes one amphora after the other: its own id, which it has as `amphoraId` while
   * it is free, and how often it has become something else.
   */
  host: z.strictObject({ id: z.uuid(), turn: z.int().nonnegative() }).optional(),
})

export type Boot = z.output<typeof bootSchema>
