import { derived, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { text } from '../../schema/values.js'

export const flavorProfile = defineResource({
  label: 'Flavor Profile',
  singular: 'flavorprofile',
  plural: 'flavorprofiles',
  links: 'flavorprofile_links',
  table: 'flavor_profile',
  source: 'flavor_profile o',
  project: null,
  tagged: false,
  attributes: {
    id: derived('uuid', 'o.id'),
    name: settableRequired(text(255)),
    provider_name: settableRequired(text(255)),
    flavor_data: settableRequired(text(4096)),
  },
})
