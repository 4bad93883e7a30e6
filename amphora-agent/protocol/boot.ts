import { z } from 'zod'

/** What an amphora is told before its first start: BOOT_FILE, mode 0600, as JSON. */
export const bootSchema = z.strictObject({
  amphoraId: z.uuid(),
  /** 32 bytes in hexadecimal. */
  heartbeatKey: z.string().regex(/^[0-9a-f]{64}$/),
  heartbeatKeyId: z.int().min(0).max(255),
  /** Every beat goes to all of them. IP addresses, without brackets. */
  healthManagers: z.array(z.strictObject({ host: z.union([z.ipv4(), z.ipv6()]), port: z.int().min(1).max(65535) })),
  beatIntervalSeconds: z.number().positive(),
})

export type Boot = z.output<typeof bootSchema>
