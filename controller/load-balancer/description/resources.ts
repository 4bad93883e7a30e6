import type * as z from 'zod'
import { amphora } from '../objects/amphorae/resource.js'
import { availabilityZoneProfile } from '../objects/availability-zone-profiles/resource.js'
import { availabilityZone } from '../objects/availability-zones/resource.js'
import { certificate } from '../objects/certificates/resource.js'
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

/** Every resource of the API by the name of its collection in paths, with the schemas of its bodies. */
export const RESOURCES: Readonly<Record<string, DescribedResource>> = {
  loadbalancers: {
    resource: loadBalancer,
    create: loadBalancerCreateSchema,
    update: updateSchema(loadBalancer),
    about: 'A VIP with its listeners and pools. A create may contain the whole tree.',
  },
  listeners: {
    resource: listener,
    create: listenerCreateSchema,
    update: updateSchema(listener),
    about: 'A port of a load balancer, and how to handle its traffic.',
  },
  pools: {
    resource: pool,
    create: poolCreateSchema,
    update: updateSchema(pool),
    about: 'A group of members that share traffic.',
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
    about: 'How a pool checks its members.',
  },
  l7policies: {
    resource: l7Policy,
    create: policyCreateSchema,
    update: updateSchema(l7Policy),
    about:
      'What a listener does with requests that match all rules of the policy. Until it has a rule, a policy does nothing, although it is ONLINE.',
  },
  rules: {
    resource: l7Rule,
    create: createSchema(l7Rule),
    update: updateSchema(l7Rule),
    about: 'A condition of an L7 policy.',
  },
  events: { resource: event, about: 'The history of a load balancer: requests, their senders, and results.' },
  certificates: {
    resource: certificate,
    about: 'What listeners and pools refer to at the key manager, and what listeners were seen to serve.',
  },
  quotas: { resource: quota, about: 'Maximum number of objects of each kind in a project.' },
  flavors: {
    resource: flavor,
    create: createSchema(flavor),
    update: updateSchema(flavor),
    about: 'A choice of capabilities for new load balancers.',
  },
  flavorprofiles: {
    resource: flavorProfile,
    create: createSchema(flavorProfile),
    update: updateSchema(flavorProfile),
    about: 'Provider settings of a flavor.',
  },
  availabilityzones: {
    resource: availabilityZone,
    create: createSchema(availabilityZone),
    update: updateSchema(availabilityZone),
    about: 'A choice of location for new load balancers, identified by name.',
  },
  availabilityzoneprofiles: {
    resource: availabilityZoneProfile,
    create: createSchema(availabilityZoneProfile),
    update: updateSchema(availabilityZoneProfile),
    about: 'Provider settings of an availability zone.',
  },
  amphorae: { resource: amphora, about: 'The machines that run load balancers.' },
}
