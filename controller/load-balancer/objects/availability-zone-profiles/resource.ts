import { derived, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { text } from '../../schema/values.js'

export const availabilityZoneProfile = defineResource({
  label: 'Availability Zone Profile',
  singular: 'availability_zone_profile',
  plural: 'availability_zone_profiles',
  links: 'availability_zone_profile_links',
  table: 'availability_zone_profile',
  source: 'availability_zone_profile o',
  project: null,
  tagged: false,
  attributes: {
    id: derived('uuid', 'o.id'),
    name: settableRequired(text(255)),
    provider_name: settableRequired(text(255)),
    availability_zone_data: settableRequired(text(4096)),
  },
})
