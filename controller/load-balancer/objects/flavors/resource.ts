import { fixedRequired, settable, settableRequired } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { boolean, text, uuid } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'

export const flavor = defineResource({
  label: 'Flavor',
  singular: 'flavor',
  plural: 'flavors',
  table: 'flavor',
  source: 'flavor o',
  project: null,
  tagged: false,
  attributes: {
    id: shared.id,
    name: settableRequired(text(255, { minimum: 1 }), 'Unique name.'),
    description: shared.description,
    enabled: settable(boolean, true, 'Whether new load balancers may use it.'),
    flavor_profile_id: fixedRequired(uuid, 'Flavor profile of the flavor.'),
  },
})
