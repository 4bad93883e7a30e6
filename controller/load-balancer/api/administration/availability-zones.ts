import type { Answer } from '../../../api/answer.js'
import { availabilityZoneProfile } from '../../objects/availability-zone-profiles/resource.js'
import { availabilityZone } from '../../objects/availability-zones/resource.js'
import { invalid } from '../../schema/faults.js'
import { readWrapped } from '../../schema/input.js'
import { parseArguments } from '../../schema/list-query.js'
import { createSchema, updateSchema } from '../../schema/resource.js'
import type { Service } from '../../schema/service.js'
import { listHandler, showHandler } from '../read-routes.js'
import type { Call, Routes } from '../routes.js'
import { authoriseShared, insertShared, removeShared, updateShared } from './shared-objects.js'

/** Stands for "none" at clients, and is no name. */
const RESERVED_NAME = '00000000-0000-0000-0000-000000000000'

const bodyOfCreate = createSchema(availabilityZone)
const bodyOfUpdate = updateSchema(availabilityZone)

/** Where load balancers can be asked to be; known by their names. */
export function availabilityZoneRoutes(service: Service): Routes {
  return {
    'GET /lbaas/availabilityzones': listHandler(service, availabilityZone),
    'POST /lbaas/availabilityzones': call => create(service, call),
    'GET /lbaas/availabilityzones/:name': showHandler(service, availabilityZone),
    'PUT /lbaas/availabilityzones/:name': call => update(service, call),
    'DELETE /lbaas/availabilityzones/:name': call => removeShared(service, availabilityZone, call),
  }
}

async function create({ database }: Service, call: Call): Promise<Answer> {
  parseArguments(call.queryString)
  const values = readWrapped(await call.readBody(), 'availability_zone', bodyOfCreate)
  authoriseShared(call)
  if (values.name === RESERVED_NAME) throw invalid(`The name ${RESERVED_NAME} is reserved.`)
  const profile = { label: availabilityZoneProfile.label, id: values.availability_zone_profile_id }
  return insertShared(database, availabilityZone, values, profile)
}

async function update({ database }: Service, call: Call): Promise<Answer> {
  parseArguments(call.queryString)
  const values = readWrapped(await call.readBody(), 'availability_zone', bodyOfUpdate)
  authoriseShared(call)
  return updateShared(database, availabilityZone, call.params.name ?? '', values)
}
