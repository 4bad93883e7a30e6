import type { z } from 'zod'
import { amphora } from '../objects/amphorae/resource.js'
import { availabilityZoneProfile } from '../objects/availability-zone-profiles/resource.js'
import { availabilityZone } from '../objects/availability-zones/resource.js'
import { event } from '../objects/events/resource.js'
import { flavorProfile } from '../objects/flavor-profiles/resource.js'
import { flavor } from '../objects/flavors/resource.js'
import { healthMonitor } from '../objects/health-monitors/resource.js'
import { l7Policy } from '../objects/l7-policies/resource.js'
import { l7Rule } from '../objects/l7-rules/resource.js'
import { listener } from '../objects/listeners/resource.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { member } from '../objects/members/resource.js'
import { pool } from '../objects/pools/resource.js'
import { quota } from '../objects/quotas/resource.js'
import { createSchema, type Resource, updateSchema } from '../schema/resource.js'
import { listenerCreateSchema, loadBalancerCreateSchema, policyCreateSchema, poolCreateSchema } from '../tree/nested.js'

export type DescribedResource = { resource: Resource; create?: z.ZodType; update?: z.ZodType; about: string }

/** Every kind of object of the API by the name of its collection in paths, with the schemas that read its bodies. */
export const RESOURCES: Readonly<Record<string, DescribedResource>> = {
  loadbalancers: {
    resource: loadBalancer,
    create: loadBalancerCreateSchema,
    update: updateSchema(loadBalancer),
    about: 'An address (VIP) and all that answers there. A create may carry the whole tree below it.',
  },
  listeners: {
    resource: listener,
    create: listenerCreateSchema,
    update: updateSchema(listener),
    about: 'A port of a load balancer and what is done with the traffic there.',
  },
  pools: {
    resource: pool,
    create: poolCreateSchema,
    update: updateSchema(pool),
    about: 'Servers among which traffic is shared.',
  },
  members: {
    resource: member,
    create: createSchema(member),
    update: updateSchema(member),
    about: 'A server of a pool.',
  },
  healthmonitors: {
    resource: healthMonitor,
    create: createSchema(healthMonitor),
    update: updateSchema(healthMonitor),
    about: 'How a pool finds out which of its members work.',
  },
  l7policies: {
    resource: l7Policy,
    create: policyCreateSchema,
    update: updateSchema(l7Policy),
    about: 'What a listener does with requests that match rules.',
  },
  rules: {
    resource: l7Rule,
    create: createSchema(l7Rule),
    update: updateSchema(l7Rule),
    about: 'One comparison of an L7 policy.',
  },
  events: { resource: event, about: 'What was asked of a load balancer, by whom, and what became of it.' },
  quotas: { resource: quota, about: 'How many objects of each kind a project may have.' },
  flavors: {
    resource: flavor,
    create: createSchema(flavor),
    update: updateSchema(flavor),
    about: 'What load balancers can be asked to be like.',
  },
  flavorprofiles: {
    resource: flavorProfile,
    create: createSchema(flavorProfile),
    update: updateSchema(flavorProfile),
    about: 'What a flavor means to a provider.',
  },
  availabilityzones: {
    resource: availabilityZone,
    create: createSchema(availabilityZone),
    update: updateSchema(availabilityZone),
    about: 'Where load balancers can be asked to be; known by name.',
  },
  availabilityzoneprofiles: {
    resource: availabilityZoneProfile,
    create: createSchema(availabilityZoneProfile),
    update: updateSchema(availabilityZoneProfile),
    about: 'What an availability zone means to a provider.',
  },
  amphorae: { resource: amphora, about: 'The machines that carry load balancers.' },
}
