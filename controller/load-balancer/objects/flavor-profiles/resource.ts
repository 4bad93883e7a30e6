import { settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { text } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'

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
    id: shared.id,
    name: settableRequired(text(255), 'Human-readable name; need not be unique.'),
    provider_name: settableRequired(text(255), 'Provider that the data is for.'),
    flavor_data: settableRequired(text(4096), 'JSON object as text; its keys are flavor capabilities of the provider.'),
  },
})
