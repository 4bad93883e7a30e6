import { fixedRequired, settable } from '../../schema/attributes.js'
import { defineResource } from '../../schema/resource.js'
import { boolean, text, uuid } from '../../schema/values.js'

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
    name: fixedRequired(text(255, { minimum: 1 })),
    description: settable(text(255), ''),
    enabled: settable(boolean, true),
    availability_zone_profile_id: fixedRequired(uuid),
  },
})
