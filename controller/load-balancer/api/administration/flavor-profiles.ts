import { flavorProfile } from '../../objects/flavor-profiles/resource.js'
import { flavor } from '../../objects/flavors/resource.js'
import { wrappedBody } from '../../schema/input.js'
import { createSchema, updateSchema } from '../../schema/resource.js'
import { profileRoutes } from './profiles.js'

export const flavorProfileRoutes = profileRoutes({
  path: '/lbaas/flavorprofiles',
  profile: flavorProfile,
  attribute: 'flavor_data',
  user: flavor,
  reference: 'flavor_profile_id',
  keysOf: provider => provider.flavorKeys,
  createBody: wrappedBody(
    flavorProfile.singular,
    createSchema(flavorProfile).transform(({ flavor_data: data, ...values }) => ({ ...values, data })),
  ),
  updateBody: wrappedBody(
    flavorProfile.singular,
    updateSchema(flavorProfile).transform(({ flavor_data: data, ...values }) => ({ ...values, data })),
  ),
})
