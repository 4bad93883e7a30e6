import { randomUUID } from 'node:crypto'
import type { Answer } from '../../../api/answer.js'
import { flavorProfile } from '../../objects/flavor-profiles/resource.js'
import { flavor } from '../../objects/flavors/resource.js'
import { readWrapped } from '../../schema/input.js'
import { parseArguments } from '../../schema/list-query.js'
import { createSchema, updateSchema } from '../../schema/resource.js'
import type { Service } from '../../schema/service.js'
import { listHandler, showHandler } from '../read-routes.js'
import type { Call, Routes } from '../routes.js'
import { authoriseShared, insertShared, removeShared, updateShared } from './shared-objects.js'

const bodyOfCreate = createSchema(flavor)
const bodyOfUpdate = updateSchema(flavor)

/** What load balancers can be asked to be like. */
export function flavorRoutes(service: Service): Routes {
  return {
    'GET /lbaas/flavors': listHandler(service, flavor),
    'POST /lbaas/flavors': call => create(service, call),
    'GET /lbaas/flavors/:id': showHandler(service, flavor),
    'PUT /lbaas/flavors/:id': call => update(service, call),
    'DELETE /lbaas/flavors/:id': call => removeShared(service, flavor, call),
  }
}

async function create({ database }: Service, call: Call): Promise<Answer> {
  parseArguments(call.queryString)
  const values = readWrapped(await call.readBody(), 'flavor', bodyOfCreate)
  authoriseShared(call)
  const profile = { label: flavorProfile.label, id: values.flavor_profile_id }
  return insertShared(database, flavor, { id: randomUUID(), ...values }, profile)
}

async function update({ database }: Service, call: Call): Promise<Answer> {
  parseArguments(call.queryString)
  const values = readWrapped(await call.readBody(), 'flavor', bodyOfUpdate)
  authoriseShared(call)
  return updateShared(database, flavor, call.params.id ?? '', values)
}
