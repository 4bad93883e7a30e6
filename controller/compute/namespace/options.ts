import * as z from 'zod'

/** Settings of the driver `namespace`, in the group `compute`. */
export const namespaceOptions = {
  amphora_memory: z.coerce
    .number()
    .int()
    .min(256)
    .default(2048)
    .describe('Memory limit of one amphora in MiB; requires control groups on the host'),
  amphora_processors: z.coerce
    .number()
    .min(0.1)
    .default(2)
    .describe('Processor limit of one amphora, such as 0.5; requires control groups on the host'),
  amphora_processes: z.coerce
    .number()
    .int()
    .min(256)
    .default(2048)
    .describe('Limit of processes and threads of one amphora; requires control groups on the host'),
  first_account: z.coerce
    .number()
    .int()
    .min(65_536)
    .max(2_147_000_000)
    .default(1_900_000_000)
    .describe('First uid and gid on the host for amphorae; the range must not be used otherwise'),
  accounts: z.coerce
    .number()
    .int()
    .min(8)
    .max(400_000)
    .default(65_536)
    .describe('Number of uids and gids for amphorae; each amphora takes eight'),
}
