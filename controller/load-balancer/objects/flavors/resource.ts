import { derived, fixedRequired, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { boolean, text, uuid } from '../../schema/values.js'

export const flavor = defineResource({
  label: 'Flavor',
  singular: 'flavor',
  plural: 'flavors',
  table: 'flavor',
  source: 'flavor o',
  project: null,
  tagged: false,
  attributes: {
    id: derived('uuid', 'o.id'),
    name: settableRequired(text(255, { minimum: 1 })),
    description: settable(text(255), ''),
    enabled: settable(boolean, true),
    flavor_profile_id: fixedRequired(uuid),
  },
})
