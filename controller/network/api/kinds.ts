/** The kinds of objects of the API: how paths, bodies, errors and sentences name them. */
export const KINDS = {
  network: {
    path: 'networks',
    title: 'network',
    fault: 'Network',
    missing: (id: string) => `Network ${id} could not be found.`,
  },
  subnet: {
    path: 'subnets',
    title: 'subnet',
    fault: 'Subnet',
    missing: (id: string) => `Subnet ${id} could not be found.`,
  },
  port: { path: 'ports', title: 'port', fault: 'Port', missing: (id: string) => `Port ${id} could not be found.` },
  router: {
    path: 'routers',
    title: 'router',
    fault: 'Router',
    missing: (id: string) => `Router ${id} could not be found.`,
  },
  floatingip: {
    path: 'floatingips',
    title: 'floating IP',
    fault: 'FloatingIP',
    missing: (id: string) => `Floating IP ${id} could not be found.`,
  },
  security_group: {
    path: 'security-groups',
    title: 'security group',
    fault: 'SecurityGroup',
    missing: (id: string) => `Security group ${id} does not exist.`,
  },
  security_group_rule: {
    path: 'security-group-rules',
    title: 'security group rule',
    fault: 'SecurityGroupRule',
    missing: (id: string) => `Security group rule ${id} does not exist.`,
  },
} as const

export type Singular = keyof typeof KINDS

/** Kinds whose objects can be changed after their creation, and have tags. */
export type ChangeableKind = Exclude<Singular, 'security_group_rule'>

export const SINGULARS = Object.keys(KINDS) as readonly Singular[]

export const pluralOf = <Kind extends Singular>(kind: Kind): `${Kind}s` => `${kind}s`

export const collectionPath = (kind: Singular): string => `/v2.0/${KINDS[kind].path}`
