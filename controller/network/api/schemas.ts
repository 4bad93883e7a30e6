import type * as z from 'zod'
import type { ChangeableKind, Singular } from './kinds.js'
import { createSchema as networkCreate, updateSchema as networkUpdate } from './networks/networks.js'
import { createSchema as subnetCreate, updateSchema as subnetUpdate } from './networks/subnets.js'
import { createSchema as portCreate, updateSchema as portUpdate } from './ports/ports.js'
import { createSchema as floatingIpCreate, updateSchema as floatingIpUpdate } from './routers/floating-ips.js'
import { createSchema as routerCreate, updateSchema as routerUpdate } from './routers/routers.js'
import { createSchema as groupCreate, updateSchema as groupUpdate } from './security-groups/groups.js'
import { createSchema as ruleCreate } from './security-groups/rules.js'

/** What a request that creates an object may say of it. */
export const CREATE_SCHEMAS = {
  network: networkCreate,
  subnet: subnetCreate,
  port: portCreate,
  router: routerCreate,
  floatingip: floatingIpCreate,
  security_group: groupCreate,
  security_group_rule: ruleCreate,
} as const satisfies Record<Singular, z.ZodObject>

/** What a request that changes an object may say of it. */
export const UPDATE_SCHEMAS = {
  network: networkUpdate,
  subnet: subnetUpdate,
  port: portUpdate,
  router: routerUpdate,
  floatingip: floatingIpUpdate,
  security_group: groupUpdate,
} as const satisfies Record<ChangeableKind, z.ZodObject>
