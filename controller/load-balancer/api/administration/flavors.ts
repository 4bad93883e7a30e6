import { randomUUID } from 'node:crypto'
import type * as z from 'zod'
import { flavorProfile } from '../../objects/flavor-profiles/resource.js'
import { flavor } from '../../objects/flavors/resource.js'
import { wrappedBody } from '../../schema/input.js'
import { parseArguments } from '../../schema/list-query.js'
import { createSchema, updateSchema } from '../../schema/resource.js'
import type { Right } from '../../schema/rights.js'
import type { Service } from '../../schema/service.js'
import type { Call } from '../dialect.js'
import { objectRoutes } from '../object-routes.js'
import { authoriseShared, insertShared, removeShared, updateShared } from './shared-objects.js'

const createBody = wrappedBody(flavor.singular, createSchema(flavor))
const updateBody = wrappedBody(flavor.singular, updateSchema(flavor))

/** Routes of flavors. */
export const flavorRoutes = objectRoutes(flavor, {
  path: '/lbaas/flavors',
  rights: { read: 'read', write: 'admin' },
  create: { request: createBody, handle: create },
  update: { request: updateBody, handle: update },
  remove: { handle: removeShared(flavor) },
})

async function create({ database }: Service, call: Call<z.output<typeof createBody>>, right: Right) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  const profile = { label: flavorProfile.label, id: values.flavor_profile_id }
  return insertShared(database, flavor, { id: randomUUID(), ...values }, profile)
}

async function update({ database }: Service, call: Call<z.output<typeof updateBody>>, right: Right) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  return updateShared(database, flavor, call.params.id ?? '', values)
}
