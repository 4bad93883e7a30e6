import { z } from 'zod'

const postgresUrl = z.string().regex(/^postgres(ql)?:\/\//, 'must be a postgres:// URL')

/** Where the tables are: one URL per service, each with a role of its own. */
export const databaseOptions = z
  .strictObject({
    url: postgresUrl
      .optional()
      .describe('Administrator of the database, for `krater db migrate`; `krater up` fills it in for its own cluster'),
    identity: postgresUrl.optional(),
    network: postgresUrl.optional(),
    load_balancer: postgresUrl.optional(),
    key_manager: postgresUrl.optional(),
  })
  .prefault({})
  .describe('One URL per service, each with a role of its own')
