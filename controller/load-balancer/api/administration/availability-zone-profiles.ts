import { availabilityZoneProfile } from '../../objects/availability-zone-profiles/resource.js'
import { availabilityZone } from '../../objects/availability-zones/resource.js'
import { readWrapped } from '../../schema/input.js'
import { createSchema, updateSchema } from '../../schema/resource.js'
import type { Service } from '../../schema/service.js'
import { listHandler, showHandler } from '../read-routes.js'
import type { Routes } from '../routes.js'
import { createProfile, type ProfileKind, updateProfile } from './profiles.js'
import { removeShared } from './shared-objects.js'

const bodyOfCreate = createSchema(availabilityZoneProfile)
const bodyOfUpdate = updateSchema(availabilityZoneProfile)

const kind: ProfileKind = {
  profile: availabilityZoneProfile,
  attribute: 'availability_zone_data',
  user: availabilityZone,
  reference: 'availability_zone_profile_id',
  keysOf: provider => provider.availabilityZoneKeys,
  readCreate: body => {
    const { availability_zone_data: data, ...values } = readWrapped(body, 'availability_zone_profile', bodyOfCreate)
    return { ...values, data }
  },
  readUpdate: body => {
    const { availability_zone_data: data, ...values } = readWrapped(body, 'availability_zone_profile', bodyOfUpdate)
    return { ...values, data }
  },
}

export function availabilityZoneProfileRoutes(service: Service): Routes {
  return {
    'GET /lbaas/availabilityzoneprofiles': listHandler(service, availabilityZoneProfile),
    'POST /lbaas/availabilityzoneprofiles': call => createProfile(service, kind, call),
    'GET /lbaas/availabilityzoneprofiles/:id': showHandler(service, availabilityZoneProfile),
    'PUT /lbaas/availabilityzoneprofiles/:id': call => updateProfile(service, kind, call),
    'DELETE /lbaas/availabilityzoneprofiles/:id': call => removeShared(service, availabilityZoneProfile, call),
  }
}
