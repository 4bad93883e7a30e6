import { z } from 'zod'

/** The options of the driver `namespace`, in the group `compute`. */
export const namespaceOptions = {
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
}
