import { settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { text } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'

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
    id: shared.id,
    name: settableRequired(text(255), 'Human-readable name; need not be unique.'),
    provider_name: settableRequired(text(255), 'Provider that the data is for.'),
    availability_zone_data: settableRequired(
      text(4096),
      'JSON object as text; its keys are availability zone capabilities of the provider.',
    ),
  },
})
