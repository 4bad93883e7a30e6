import { randomUUID } from 'node:crypto'
import type * as z from 'zod'
import { execute, maybeOne } from '../../../database/query.js'
import { identifier, insertion, sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import { badRequest } from '../../../http/errors.js'
import {
  checkProfileData,
  enabledProvider,
  type ProfileKey,
  type ProviderCapabilities,
} from '../../schema/capabilities.js'
import { missing } from '../../schema/faults.js'
import { invalidInput } from '../../schema/input.js'
import { parseArguments } from '../../schema/list-query.js'
import { readProfileData } from '../../schema/profile-keys.js'
import type { Resource } from '../../schema/resource.js'
import type { Right } from '../../schema/rights.js'
import type { Service } from '../../schema/service.js'
import type { Call, LoadBalancerRoute } from '../dialect.js'
import { objectRoutes } from '../object-routes.js'
import { answerWith, authoriseShared, inUse, removeShared, requireKey, writeShared } from './shared-objects.js'

type Values = { name: string; provider_name: string; data: string }

/** Differences between flavor profiles and availability zone profiles. */
type ProfileKind = {
  path: string
  profile: Resource
  /** Attribute and column of the data, which is the text of a JSON object. */
  attribute: 'flavor_data' | 'availability_zone_data'
  /** Resource that uses such a profile, and its column with the profile's id. */
  user: Resource
  reference: 'flavor_profile_id' | 'availability_zone_profile_id'
  keysOf: (provider: ProviderCapabilities) => readonly ProfileKey[] | null
  createBody: z.ZodType<Values>
  updateBody: z.ZodType<Partial<Values>>
}

export const profileRoutes = (kind: ProfileKind): LoadBalancerRoute[] =>
  objectRoutes(kind.profile, {
    path: kind.path,
    rights: { read: 'admin', write: 'admin' },
    create: {
      request: kind.createBody,
      handle: (service, call, right) => createProfile(service, kind, call, right),
    },
    update: {
      request: kind.updateBody,
      handle: (service, call, right) => updateProfile(service, kind, call, right),
    },
    remove: { handle: removeShared(kind.profile) },
  })

async function createProfile({ database, providers }: Service, kind: ProfileKind, call: Call<Values>, right: Right) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  checkData(providers, kind, values.provider_name, values.data)
  const id = randomUUID()
  return inTransaction(database, async trx => {
    const columns = insertion([{ id, ...columnsOf(kind, values) }])
    await execute(trx, sql`INSERT INTO ${identifier(kind.profile.table)} ${columns}`)
    return answerWith(201, trx, kind.profile, id)
  })
}

/** Of a profile in use, only the name can change, so that existing load balancers keep their data. */
async function updateProfile(
  { database, providers }: Service,
  kind: ProfileKind,
  call: Call<Partial<Values>>,
  right: Right,
) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  const { profile, user, reference, attribute } = kind
  const id = requireKey(profile, call.params.id ?? '')
  return inTransaction(database, async trx => {
    if (values.provider_name !== undefined || values.data !== undefined) {
      // The lock makes a concurrent create of a flavor from this profile wait.
      const row = await maybeOne(
        trx,
        sql<Pick<Values, 'provider_name' | 'data'>>`
          SELECT provider_name, ${identifier(attribute)} AS data FROM ${identifier(profile.table)}
           WHERE id = ${id} FOR UPDATE`,
      )
      if (row === undefined) throw missing(profile.label, id)
      checkData(providers, kind, values.provider_name ?? row.provider_name, values.data ?? row.data)
      const inUseBy = await maybeOne(
        trx,
        sql`SELECT 1 FROM ${identifier(user.table)} WHERE ${identifier(reference)} = ${id} LIMIT 1`,
      )
      if (inUseBy !== undefined) throw inUse(profile, id)
    }
    await writeShared(trx, profile, id, columnsOf(kind, values))
    return answerWith(200, trx, profile, id)
  })
}

function columnsOf({ attribute }: ProfileKind, { data, ...columns }: Partial<Values>): Record<string, string> {
  return { ...columns, ...(data === undefined ? {} : { [attribute]: data }) }
}

/**
 * @throws ApiError 400 when the provider is not enabled or the text is not a JSON object, 501 for unsupported
 *   data
 */
function checkData(
  providers: readonly ProviderCapabilities[],
  { attribute, user, keysOf }: ProfileKind,
  name: string,
  text: string,
): void {
  const provider = enabledProvider(providers, name)
  const data = readProfileData(text)
  if (data === null)
    throw badRequest(invalidInput(attribute, text, 'Value should be a string that contains a JSON object'))
  checkProfileData(provider, keysOf(provider), user, data)
}
