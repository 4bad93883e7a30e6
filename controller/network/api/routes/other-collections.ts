import { jsonAnswer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { route } from '../dialect.js'
import { NeutronError } from '../neutron-error.js'

/** A kind of resource that other Networking services have and this one does not. */
type Missing = {
  /** The key in the answer. */
  key: string
  name: string
  /** What to do instead. */
  instead?: string
}

/** By their path below /v2.0. */
export const MISSING: Readonly<Record<string, Missing>> = {
  agents: { key: 'agents', name: 'agents' },
  availability_zones: { key: 'availability_zones', name: 'availability zones' },
  'qos/policies': { key: 'policies', name: 'QoS policies' },
  subnetpools: { key: 'subnetpools', name: 'subnet pools', instead: 'Create a subnet with a cidr of your choice.' },
  'address-scopes': { key: 'address_scopes', name: 'address scopes' },
  'address-groups': { key: 'address_groups', name: 'address groups' },
  'network-ip-availabilities': { key: 'network_ip_availabilities', name: 'IP availabilities' },
  trunks: { key: 'trunks', name: 'trunks' },
  'rbac-policies': {
    key: 'rbac_policies',
    name: 'RBAC policies',
    instead: 'An administrator shares a network with all projects by its attribute shared.',
  },
  segments: { key: 'segments', name: 'segments' },
  flavors: { key: 'flavors', name: 'flavors' },
  'service-providers': { key: 'service_providers', name: 'service providers' },
}

/** The API extensions whose attributes and filters this service supports. */
export const EXTENSIONS: readonly { alias: string; name: string; description: string }[] = [
  {
    alias: 'external-net',
    name: 'Neutron external network',
    description: 'Adds external network attribute to network resource.',
  },
  {
    alias: 'router',
    name: 'Neutron L3 Router',
    description:
      'Router abstraction for basic L3 forwarding between L2 Neutron networks and access to external networks via a NAT gateway.',
  },
  {
    alias: 'ext-gw-mode',
    name: 'Neutron L3 Configurable external gateway mode',
    description: 'Extension of the router abstraction for specifying whether SNAT should occur on the external gateway',
  },
  {
    alias: 'extraroute',
    name: 'Neutron Extra Route',
    description: 'Extra routes configuration for L3 router',
  },
  {
    alias: 'extraroute-atomic',
    name: 'Atomically add/remove extra routes',
    description: 'Edit extra routes of a router on server side by atomically adding/removing extra routes',
  },
  {
    alias: 'fip-port-details',
    name: 'Floating IP Port Details Extension',
    description: 'Add port_details attribute to Floating IP resource',
  },
  {
    alias: 'security-group',
    name: 'security-group',
    description: 'The security groups extension.',
  },
  {
    alias: 'stateful-security-group',
    name: 'Stateful security group',
    description: 'Indicates if the security group is stateful or not',
  },
  {
    alias: 'security-groups-normalized-cidr',
    name: 'Normalized CIDR field for security group rules',
    description: 'Add new field with normalized remote_ip_prefix cidr in SG rule',
  },
  {
    alias: 'port-security',
    name: 'Port Security',
    description: 'Provides port security',
  },
  {
    alias: 'allowed-address-pairs',
    name: 'Allowed Address Pairs',
    description: 'Provides allowed address pairs',
  },
  {
    alias: 'provider',
    name: 'Provider Network',
    description: 'Expose mapping of virtual networks to physical networks',
  },
  {
    alias: 'net-mtu',
    name: 'Network MTU',
    description: 'Provides MTU attribute for a network resource.',
  },
  {
    alias: 'project-id',
    name: 'project_id field enabled',
    description: 'Extension that indicates that project_id field is enabled.',
  },
  {
    alias: 'pagination',
    name: 'Pagination support',
    description: 'Extension that indicates that pagination is enabled.',
  },
  { alias: 'sorting', name: 'Sorting support', description: 'Extension that indicates that sorting is enabled.' },
  {
    alias: 'filter-validation',
    name: 'Filter parameters validation',
    description: 'Provides validation on filter parameters.',
  },
  {
    alias: 'empty-string-filtering',
    name: 'Empty String Filtering Extension',
    description: 'Allow filtering by attributes with empty string value',
  },
  {
    alias: 'ip-substring-filtering',
    name: 'IP address substring filtering',
    description: 'Provides IP address substring filtering when listing ports',
  },
  {
    alias: 'quotas',
    name: 'Quota management support',
    description: 'Expose functions for quotas management per project',
  },
  {
    alias: 'quota_details',
    name: 'Quota details management support',
    description: 'Expose functions for quotas usage statistics per project',
  },
  {
    alias: 'quota-check-limit',
    name: 'Quota limit check',
    description: 'Check the resource usage before applying a new quota limit',
  },
  {
    alias: 'revision-if-match',
    name: 'If-Match constraints based on revision_number',
    description: 'Extension indicating that If-Match based on revision_number is supported.',
  },
  {
    alias: 'standard-attr-description',
    name: 'standard-attr-description',
    description: 'Extension to add descriptions to standard attributes',
  },
  {
    alias: 'standard-attr-revisions',
    name: 'Resource revision numbers',
    description: 'This extension will display the revision number of neutron resources.',
  },
  {
    alias: 'standard-attr-tag',
    name: 'Tag support for resources with standard attribute: port, subnet, network, router, floatingip, security_group',
    description: 'Enables to set tag on resources with standard attribute.',
  },
  {
    alias: 'standard-attr-timestamp',
    name: 'Resource timestamps',
    description:
      'Adds created_at and updated_at fields to all Neutron resources that have Neutron standard attributes.',
  },
]

const presentExtension = (extension: (typeof EXTENSIONS)[number]) => ({
  ...extension,
  updated: '2026-01-01T00:00:00-00:00',
  links: [],
})

const common = { method: 'GET', right: 'see the service', group: 'extensions', status: 200 } as const

/** Answers the look-ups that clients make along the way with empty lists, so that their commands do not fail. */
export const otherRoutes = [
  ...Object.entries(MISSING).flatMap(([path, { key, name, instead }]) => [
    route({
      ...common,
      path: `/v2.0/${path}`,
      summary: `List ${name}: always empty`,
      answer: objectOf({ [key]: { type: 'array', maxItems: 0 } }),
      handle: async () => jsonAnswer(200, { [key]: [] }),
    }),
    route({
      ...common,
      ...{ method: 'POST', path: `/v2.0/${path}`, status: 501 },
      summary: `Create ${name}: always refused`,
      handle: async () => {
        const refusal = `This networking service does not offer ${name}.`
        throw new NeutronError(501, 'HTTPNotImplemented', instead === undefined ? refusal : `${refusal} ${instead}`)
      },
    }),
    route({
      ...common,
      path: `/v2.0/${path}/:id`,
      summary: `Show one of the ${name}: always answers 404`,
      status: 404,
      handle: async () => {
        throw new NeutronError(404, 'HTTPNotFound', 'The resource could not be found.')
      },
    }),
  ]),
  route({
    ...common,
    path: '/v2.0/extensions',
    summary: 'List the API extensions whose attributes and filters this service supports',
    answer: objectOf({ extensions: { type: 'array', items: ref('extension') } }),
    handle: async () => jsonAnswer(200, { extensions: EXTENSIONS.map(presentExtension) }),
  }),
  route({
    ...common,
    path: '/v2.0/extensions/:alias',
    summary: 'Show an extension',
    answer: objectOf({ extension: ref('extension') }),
    handle: async (_service, { params }) => {
      const extension = EXTENSIONS.find(({ alias }) => alias === params.alias)
      if (extension !== undefined) return jsonAnswer(200, { extension: presentExtension(extension) })
      throw new NeutronError(404, 'HTTPNotFound', `Extension with alias ${params.alias} does not exist`)
    },
  }),
]
