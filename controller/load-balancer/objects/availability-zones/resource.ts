import { fixedRequired, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { boolean, text, uuid } from '../../schema/values.js'
import { shared } from '../shared-attributes.js'

export const availabilityZone = defineResource({
  label: 'Availability Zone',
  singular: 'availability_zone',
  plural: 'availability_zones',
  table: 'availability_zone',
  source: 'availability_zone o',
  key: { column: 'name', kind: 'text' },
  project: null,
  tagged: false,
  attributes: {
    name: fixedRequired(text(255, { minimum: 1 }), 'Unique name.'),
    description: shared.description,
    enabled: settable(boolean, true, 'Whether new load balancers may use it.'),
    availability_zone_profile_id: fixedRequired(uuid, 'Availability zone profile of the zone.'),
  },
})
