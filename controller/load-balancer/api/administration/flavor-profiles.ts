import { flavorProfile } from '../../objects/flavor-profiles/resource.js'
import { flavor } from '../../objects/flavors/resource.js'
import { readWrapped } from '../../schema/input.js'
import { createSchema, updateSchema } from '../../schema/resource.js'
import type { Service } from '../../schema/service.js'
import { listHandler, showHandler } from '../read-routes.js'
import type { Routes } from '../routes.js'
import { createProfile, type ProfileKind, updateProfile } from './profiles.js'
import { removeShared } from './shared-objects.js'

const bodyOfCreate = createSchema(flavorProfile)
const bodyOfUpdate = updateSchema(flavorProfile)

const kind: ProfileKind = {
  profile: flavorProfile,
  attribute: 'flavor_data',
  user: flavor,
  reference: 'flavor_profile_id',
  keysOf: provider => provider.flavorKeys,
  readCreate: body => {
    const { flavor_data: data, ...values } = readWrapped(body, 'flavorprofile', bodyOfCreate)
    return { ...values, data }
  },
  readUpdate: body => {
    const { flavor_data: data, ...values } = readWrapped(body, 'flavorprofile', bodyOfUpdate)
    return { ...values, data }
  },
}

export function flavorProfileRoutes(service: Service): Routes {
  return {
    'GET /lbaas/flavorprofiles': listHandler(service, flavorProfile),
    'POST /lbaas/flavorprofiles': call => createProfile(service, kind, call),
    'GET /lbaas/flavorprofiles/:id': showHandler(service, flavorProfile),
    'PUT /lbaas/flavorprofiles/:id': call => updateProfile(service, kind, call),
    'DELETE /lbaas/flavorprofiles/:id': call => removeShared(service, flavorProfile, call),
  }
}
