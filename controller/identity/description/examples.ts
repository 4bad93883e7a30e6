import type { Examples } from '../../api/description/examples.js'

/** Roles of users and groups on projects, domains and the system. */
const grants = Object.fromEntries(
  [
    { on: '--project $PROJECT_ID', place: 'projects/{project_id}' },
    { on: '--domain $DOMAIN_ID', place: 'domains/{domain_id}' },
    { on: '--system all', place: 'system' },
  ].flatMap(({ on, place }) =>
    [
      { of: '--user $USER_ID', actor: 'users/{user_id}' },
      { of: '--group $GROUP_ID', actor: 'groups/{group_id}' },
    ].flatMap(({ of, actor }) => {
      const path = `/v3/${place}/${actor}/roles`
      return [
        [`GET ${path}`, { command: `role assignment list ${of} ${on}` }],
        [`PUT ${path}/{role_id}`, { command: `role add ${of} ${on} $ROLE_ID` }],
        [`DELETE ${path}/{role_id}`, { command: `role remove ${of} ${on} $ROLE_ID` }],
      ] as const
    }),
  ),
)

/** List, show and delete, which have the same form for every kind of object. */
const common = Object.fromEntries(
  ['user', 'project', 'domain', 'role', 'group', 'service', 'endpoint', 'region', 'credential'].flatMap(kind => {
    const named = `$${kind.toUpperCase()}_ID`
    return [
      [`GET /v3/${kind}s`, { command: `${kind} list` }],
      [`GET /v3/${kind}s/{id}`, { command: `${kind} show ${named}` }],
      [`DELETE /v3/${kind}s/{id}`, { command: `${kind} delete ${named}` }],
    ] as const
  }),
)

const tokens: Examples['operations'] = {
  'POST /v3/auth/tokens': {
    json: {
      auth: {
        identity: {
          methods: ['password'],
          password: {
            user: { name: '$OS_USERNAME', domain: { name: '$OS_USER_DOMAIN_NAME' }, password: '$OS_PASSWORD' },
          },
        },
        scope: { project: { name: '$OS_PROJECT_NAME', domain: { name: '$OS_PROJECT_DOMAIN_NAME' } } },
      },
    },
    command: 'token issue',
  },
  'HEAD /v3/auth/tokens': { headers: { 'X-Subject-Token': '$TOKEN' } },
  'GET /v3/auth/tokens': { headers: { 'X-Subject-Token': '$TOKEN' } },
  'DELETE /v3/auth/tokens': {
    headers: { 'X-Subject-Token': '$OTHER_TOKEN' },
    command: 'token revoke $OTHER_TOKEN',
  },
  'GET /v3/auth/catalog': { command: 'catalog list' },
}

const accounts: Examples['operations'] = {
  'POST /v3/users': {
    json: { user: { name: 'alice', password: 'an-easy-one', default_project_id: '$PROJECT_ID' } },
    command: 'user create alice --password an-easy-one --project $PROJECT_ID',
  },
  'PATCH /v3/users/{id}': {
    json: { user: { enabled: false } },
    command: 'user set $USER_ID --disable',
  },
  'POST /v3/users/{user_id}/password': {
    json: { user: { original_password: '$OS_PASSWORD', password: 'a-better-one' } },
    command: 'user password set --original-password $OS_PASSWORD --password a-better-one',
  },
  'GET /v3/users/{user_id}/projects': { command: 'project list --user $USER_ID' },
  'GET /v3/users/{user_id}/groups': { command: 'group list --user $USER_ID' },
  'POST /v3/projects': {
    json: { project: { name: 'shop', description: 'The shop' } },
    command: "project create shop --description 'The shop'",
  },
  'PATCH /v3/projects/{id}': {
    json: { project: { description: 'The new shop' } },
    command: "project set $PROJECT_ID --description 'The new shop'",
  },
  'PUT /v3/projects/{id}/tags': { json: { tags: ['shop', 'retail'] } },
  'POST /v3/domains': { json: { domain: { name: 'partners' } }, command: 'domain create partners' },
  // A domain is deleted after it is disabled.
  'PATCH /v3/domains/{id}': {
    json: { domain: { enabled: false } },
    command: 'domain set $DOMAIN_ID --disable',
  },
  'POST /v3/groups': { json: { group: { name: 'operators' } }, command: 'group create operators' },
  'PATCH /v3/groups/{id}': {
    json: { group: { description: 'On call' } },
    command: "group set $GROUP_ID --description 'On call'",
  },
  'GET /v3/groups/{group_id}/users': { command: 'user list --group $GROUP_ID' },
  'PUT /v3/groups/{group_id}/users/{user_id}': { command: 'group add user $GROUP_ID $USER_ID' },
  'GET /v3/groups/{group_id}/users/{user_id}': { command: 'group contains user $GROUP_ID $USER_ID' },
  'DELETE /v3/groups/{group_id}/users/{user_id}': { command: 'group remove user $GROUP_ID $USER_ID' },
}

const roles: Examples['operations'] = {
  'POST /v3/roles': { json: { role: { name: 'auditor' } }, command: 'role create auditor' },
  'PATCH /v3/roles/{id}': {
    json: { role: { description: 'Reads everything' } },
    command: "role set $ROLE_ID --description 'Reads everything'",
  },
  'GET /v3/role_inferences': { command: 'implied role list' },
  'PUT /v3/roles/{prior_id}/implies/{implied_id}': {
    command: 'implied role create $PRIOR_ID --implied-role $IMPLIED_ID',
  },
  'DELETE /v3/roles/{prior_id}/implies/{implied_id}': {
    command: 'implied role delete $PRIOR_ID --implied-role $IMPLIED_ID',
  },
  'GET /v3/role_assignments': { command: 'role assignment list' },
}

const catalog: Examples['operations'] = {
  'POST /v3/services': {
    json: { service: { type: 'dns', name: 'names' } },
    command: 'service create dns --name names',
  },
  'PATCH /v3/services/{id}': {
    json: { service: { description: 'Names of the shop' } },
    command: "service set $SERVICE_ID --description 'Names of the shop'",
  },
  'POST /v3/endpoints': {
    json: { endpoint: { service_id: '$SERVICE_ID', interface: 'public', url: 'https://dns.example.com' } },
    command: 'endpoint create $SERVICE_ID public https://dns.example.com',
  },
  'PATCH /v3/endpoints/{id}': {
    json: { endpoint: { url: 'https://names.example.com' } },
    command: 'endpoint set $ENDPOINT_ID --url https://names.example.com',
  },
  'POST /v3/regions': {
    json: { region: { id: 'north', description: 'Data centre north' } },
    command: "region create north --description 'Data centre north'",
  },
  'PUT /v3/regions/{id}': { segments: { id: 'south' }, json: { region: { description: 'Data centre south' } } },
  'PATCH /v3/regions/{id}': {
    json: { region: { description: 'The old data centre' } },
    command: "region set $REGION_ID --description 'The old data centre'",
  },
}

const credentials: Examples['operations'] = {
  'POST /v3/credentials': {
    json: { credential: { type: 'totp', blob: 'GEZDGNBVGY3TQOJQGEZDGNBVGY', user_id: '$USER_ID' } },
    command: 'credential create $USER_ID GEZDGNBVGY3TQOJQGEZDGNBVGY --type totp',
  },
  'PATCH /v3/credentials/{id}': {
    json: { credential: { blob: 'NBSWY3DPEB3W64TMMQQGC3TEEB' } },
    command: 'credential set $CREDENTIAL_ID --user $USER_ID --type totp --data NBSWY3DPEB3W64TMMQQGC3TEEB',
  },
  'GET /v3/users/{user_id}/application_credentials': { command: 'application credential list --user $USER_ID' },
  'POST /v3/users/{user_id}/application_credentials': {
    json: { application_credential: { name: 'deploy' } },
    command: 'application credential create deploy',
  },
  'GET /v3/users/{user_id}/application_credentials/{id}': {
    command: 'application credential show $APPLICATION_CREDENTIAL_ID',
  },
  'DELETE /v3/users/{user_id}/application_credentials/{id}': {
    command: 'application credential delete $APPLICATION_CREDENTIAL_ID',
  },
}

export const EXAMPLES: Examples = {
  urlVariable: 'IDENTITY_URL',
  segments: {},
  operations: { ...common, ...grants, ...tokens, ...accounts, ...roles, ...catalog, ...credentials },
}
