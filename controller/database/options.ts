import * as z from 'zod'

const postgresUrl = z.string().regex(/^postgres(ql)?:\/\//, 'must be a postgres:// URL')

/** Where the tables are: one URL per service, each with its own role. */
export const databaseOptions = z
  .strictObject({
    url: postgresUrl
      .optional()
      .describe(
        'URL of the database administrator, for `krater db migrate`; `krater up` sets it for its own PostgreSQL',
      ),
    identity: postgresUrl.optional(),
    network: postgresUrl.optional(),
    load_balancer: postgresUrl.optional(),
    key_manager: postgresUrl.optional(),
  })
  .prefault({})
  .describe('One URL per service, each with its own role')
