import { randomUUID } from 'node:crypto'
import type { z } from 'zod'
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

const bodyOfCreate = wrappedBody(flavor.singular, createSchema(flavor))
const bodyOfUpdate = wrappedBody(flavor.singular, updateSchema(flavor))

/** What load balancers can be asked to be like. */
export const flavorRoutes = objectRoutes(flavor, {
  path: '/lbaas/flavors',
  rights: { read: 'read', write: 'admin' },
  create: { request: bodyOfCreate, handle: create },
  update: { request: bodyOfUpdate, handle: update },
  remove: { handle: removeShared(flavor) },
})

async function create({ database }: Service, call: Call<z.output<typeof bodyOfCreate>>, right: Right) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  const profile = { label: flavorProfile.label, id: values.flavor_profile_id }
  return insertShared(database, flavor, { id: randomUUID(), ...values }, profile)
}

async function update({ database }: Service, call: Call<z.output<typeof bodyOfUpdate>>, right: Right) {
  parseArguments(call.queryString)
  const values = await call.body()
  authoriseShared(call.caller, right)
  return updateShared(database, flavor, call.params.id ?? '', values)
}
