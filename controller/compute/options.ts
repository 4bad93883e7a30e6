import { z } from 'zod'

/** The options of the machines that amphorae are. */
export const computeOptions = z
  .strictObject({
    driver: z.enum(['namespace', 'noop']).default('namespace'),
    warm_amphorae: z.coerce
      .number()
      .int()
      .min(0)
      .max(100)
      .default(1)
      .describe('Amphorae kept ready for the next load balancer'),
    old_workers: z.coerce
      .number()
      .int()
      .min(1)
      .max(1000)
      .default(50)
      .describe(
        'Most HAProxy processes of one amphora that keep the connections of a former configuration; the oldest ends when there are more',
      ),
    old_workers_memory: z.coerce
      .number()
      .int()
      .min(16)
      .default(512)
      .describe('Most MiB of memory that such processes of one amphora may have together'),
    amphora_memory: z.coerce
      .number()
      .int()
      .min(256)
      .default(2048)
      .describe('Most MiB of memory that one amphora may use, where the host has control groups'),
    amphora_processors: z.coerce
      .number()
      .min(0.1)
      .default(2)
      .describe('Most processors that one amphora may keep busy, such as 0.5, where the host has control groups'),
    amphora_processes: z.coerce
      .number()
      .int()
      .min(256)
      .default(2048)
      .describe('Most processes and threads of one amphora, where the host has control groups'),
    first_account: z.coerce
      .number()
      .int()
      .min(65_536)
      .max(2_147_000_000)
      .default(1_900_000_000)
      .describe('First of the numbers of users and groups that amphorae have on the host; nobody else may have them'),
    accounts: z.coerce
      .number()
      .int()
      .min(8)
      .max(400_000)
      .default(65_536)
      .describe('How many numbers of users and groups there are for amphorae; each takes eight'),
  })
  .prefault({})

export type ComputeSettings = z.output<typeof computeOptions>
