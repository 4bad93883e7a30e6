import type { z } from 'zod'
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

/** Stands for "none" at clients, and is no name. */
const RESERVED_NAME = '00000000-0000-0000-0000-000000000000'

const bodyOfCreate = wrappedBody(availabilityZone.singular, createSchema(availabilityZone))
const bodyOfUpdate = wrappedBody(availabilityZone.singular, updateSchema(availabilityZone))

/** Where load balancers can be asked to be; known by their names. */
export const availabilityZoneRoutes = objectRoutes(availabilityZone, {
  path: '/lbaas/availabilityzones',
  rights: { read: 'read', write: 'admin' },
  create: { request: bodyOfCreate, handle: create },
  update: { request: bodyOfUpdate, handle: update },
  remove: { handle: removeShared(availabilityZone) },
})

async function create({ database }: Service, call: Call<z.output<typeof bodyOfCreate>>, right: Right) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  if (values.name === RESERVED_NAME) throw invalid(`The name ${RESERVED_NAME} is reserved.`)
  const profile = { label: availabilityZoneProfile.label, id: values.availability_zone_profile_id }
  return insertShared(database, availabilityZone, values, profile)
}

async function update({ database }: Service, call: Call<z.output<typeof bodyOfUpdate>>, right: Right) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  return updateShared(database, availabilityZone, call.params.name ?? '', values)
}
