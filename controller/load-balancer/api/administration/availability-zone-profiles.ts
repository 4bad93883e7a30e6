import { availabilityZoneProfile } from '../../objects/availability-zone-profiles/resource.js'
import { availabilityZone } from '../../objects/availability-zones/resource.js'
import { wrappedBody } from '../../schema/input.js'
import { createSchema, updateSchema } from '../../schema/resource.js'
import { profileRoutes } from './profiles.js'

export const availabilityZoneProfileRoutes = profileRoutes({
  path: '/lbaas/availabilityzoneprofiles',
  profile: availabilityZoneProfile,
  attribute: 'availability_zone_data',
  user: availabilityZone,
  reference: 'availability_zone_profile_id',
  keysOf: provider => provider.availabilityZoneKeys,
  createBody: wrappedBody(
    availabilityZoneProfile.singular,
    createSchema(availabilityZoneProfile).transform(({ availability_zone_data: data, ...values }) => ({
      ...values,
      data,
    })),
  ),
  updateBody: wrappedBody(
    availabilityZoneProfile.singular,
    updateSchema(availabilityZoneProfile).transform(({ availability_zone_data: data, ...values }) => ({
      ...values,
      data,
    })),
  ),
})
