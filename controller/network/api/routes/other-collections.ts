import { jsonAnswer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { route } from '../dialect.js'
import { NeutronError } from '../neutron-error.js'

/** Path below /v2.0 -> key in the answer, for resources that other Networking services have and this one does not. */
const EMPTY: Readonly<Record<string, string>> = {
  agents: 'agents',
  availability_zones: 'availability_zones',
  routers: 'routers',
  floatingips: 'floatingips',
  'security-groups': 'security_groups',
  'security-group-rules': 'security_group_rules',
  'qos/policies': 'policies',
  subnetpools: 'subnetpools',
  'address-scopes': 'address_scopes',
  'address-groups': 'address_groups',
  'network-ip-availabilities': 'network_ip_availabilities',
  trunks: 'trunks',
  'rbac-policies': 'rbac_policies',
  segments: 'segments',
  flavors: 'flavors',
  'service-providers': 'service_providers',
}

/** The API extensions whose attributes and filters this service supports. */
const EXTENSIONS: readonly { alias: string; name: string; description: string }[] = [
  {
    alias: 'external-net',
    name: 'Neutron external network',
    description: 'Adds external network attribute to network resource.',
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
    name: 'Tag support for resources with standard attribute: port, subnet, network',
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
  ...Object.entries(EMPTY).flatMap(([path, key]) => [
    route({
      ...common,
      path: `/v2.0/${path}`,
      summary: `List ${key.replaceAll('_', ' ')}: always empty`,
      answer: objectOf({ [key]: { type: 'array', maxItems: 0 } }),
      handle: async () => jsonAnswer(200, { [key]: [] }),
    }),
    route({
      ...common,
      path: `/v2.0/${path}/:id`,
      summary: `Show one of the ${key.replaceAll('_', ' ')}: always answers 404`,
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
