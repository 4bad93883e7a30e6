import type * as z from 'zod'
import { availabilityZoneProfile } from '../../objects/availability-zone-profiles/resource.js'
import { availabilityZone } from '../../objects/availability-zones/resource.js'
import { invalid } from '../../schema/faults.js'
import { wrappedBody } from '../../schema/input.js'
import { parseArguments } from '../../schema/list-query.js'
import { createSchema, updateSchema } from '../../schema/resource.js'
import type { Right } from '../../schema/rights.js'
import type { Service } from '../../schema/service.js'
import type { Call } from '../dialect.js'
import { objectRoutes } from '../object-routes.js'
import { authoriseShared, insertShared, removeShared, updateShared } from './shared-objects.js'

/** Means "no availability zone" to clients, so it cannot be a name. */
const RESERVED_NAME = '00000000-0000-0000-0000-000000000000'

const createBody = wrappedBody(availabilityZone.singular, createSchema(availabilityZone))
const updateBody = wrappedBody(availabilityZone.singular, updateSchema(availabilityZone))

/** Routes of availability zones, which are identified by name. */
export const availabilityZoneRoutes = objectRoutes(availabilityZone, {
  path: '/lbaas/availabilityzones',
  rights: { read: 'read', write: 'admin' },
  create: { request: createBody, handle: create },
  update: { request: updateBody, handle: update },
  remove: { handle: removeShared(availabilityZone) },
})

async function create({ database }: Service, call: Call<z.output<typeof createBody>>, right: Right) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  if (values.name === RESERVED_NAME) throw invalid(`The name ${RESERVED_NAME} is reserved.`)
  const profile = { label: availabilityZoneProfile.label, id: values.availability_zone_profile_id }
  return insertShared(database, availabilityZone, values, profile)
}

async function update({ database }: Service, call: Call<z.output<typeof updateBody>>, right: Right) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  return updateShared(database, availabilityZone, call.params.name ?? '', values)
}
