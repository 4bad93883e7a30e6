/**
 * Who may do what in the key manager, written down for the tests and independent of the code that decides.
 *
 * A rule is a list of alternatives, each a list of conditions that must all hold: one of some roles (`admin
 * creator`), and
 * - P: the caller's project owns the object
 * - C: the caller created it
 * - pub: its ACL leaves it to the project
 * - A: its ACL lists the caller
 * - anyone: only a token for a project
 */
type Rule = readonly string[]

/** Under the older and the newer rules. */
type Row = { legacy: Rule; new: Rule }

const FIVE = 'admin creator observer audit key-manager:service-admin'

const READ = [`${FIVE} & P & pub`, 'creator & P & C', 'admin & P', 'A']
const CHANGE = ['admin & P', 'creator & P & C', 'creator & P & pub']
const NEW_CHANGE = ['admin & P', 'member & P & C', 'member & P & pub']
const NEW_READ = [...NEW_CHANGE, 'A']
const LIST: Row = { legacy: ['admin creator observer'], new: ['member'] }
const CREATE: Row = { legacy: ['admin creator'], new: ['member'] }
const METADATA_WRITE: Row = { legacy: CHANGE, new: NEW_CHANGE }
const METADATA_READ: Row = { legacy: READ, new: NEW_READ }
const ACL_READ: Row = { legacy: ['admin creator observer & P'], new: NEW_CHANGE }
const ACL_WRITE: Row = { legacy: CHANGE, new: NEW_CHANGE }
const CONSUMERS: Row = { legacy: READ, new: NEW_READ }
const ONE_CONSUMER: Row = { legacy: ['admin creator observer audit', ...READ], new: ['admin', ...NEW_READ] }
const PROJECT_QUOTAS: Row = { legacy: ['key-manager:service-admin'], new: ['admin'] }
const ANY_READER: Row = { legacy: [FIVE], new: ['reader'] }
const ADMIN: Row = { legacy: ['admin'], new: ['admin'] }
const SERVICE_ADMIN: Row = { legacy: ['key-manager:service-admin'], new: ['admin'] }
const ADMIN_OR_MEMBER: Row = { legacy: ['admin'], new: ['member'] }

/** Every route of the API. */
export const RIGHTS: Readonly<Record<string, Row>> = {
  'GET /v1': { legacy: ['anyone'], new: ['anyone'] },
  'GET /v1/secrets': LIST,
  'POST /v1/secrets': CREATE,
  'GET /v1/secrets/:id': { legacy: READ, new: ['admin', 'member & P & C', 'member & P & pub', 'A'] },
  'PUT /v1/secrets/:id': { legacy: ['admin creator & P'], new: NEW_CHANGE },
  'DELETE /v1/secrets/:id': { legacy: CHANGE, new: ['admin', 'member & P & C', 'member & P & pub'] },
  'GET /v1/secrets/:id/payload': {
    legacy: ['admin creator observer & P & pub', 'creator & P & C', 'admin & P', 'A'],
    new: NEW_READ,
  },
  'GET /v1/secrets/:id/metadata': METADATA_READ,
  'PUT /v1/secrets/:id/metadata': METADATA_WRITE,
  'POST /v1/secrets/:id/metadata': METADATA_WRITE,
  'GET /v1/secrets/:id/metadata/:key': METADATA_READ,
  'PUT /v1/secrets/:id/metadata/:key': METADATA_WRITE,
  'DELETE /v1/secrets/:id/metadata/:key': METADATA_WRITE,
  'GET /v1/secrets/:id/acl': ACL_READ,
  'PUT /v1/secrets/:id/acl': ACL_WRITE,
  'PATCH /v1/secrets/:id/acl': ACL_WRITE,
  'DELETE /v1/secrets/:id/acl': ACL_WRITE,
  'GET /v1/secrets/:id/consumers': CONSUMERS,
  'POST /v1/secrets/:id/consumers': CONSUMERS,
  'DELETE /v1/secrets/:id/consumers': CONSUMERS,
  'GET /v1/secrets/:id/consumers/:consumer': ONE_CONSUMER,
  'GET /v1/containers': LIST,
  'POST /v1/containers': CREATE,
  'GET /v1/containers/:id': { legacy: READ, new: NEW_READ },
  'DELETE /v1/containers/:id': { legacy: ['admin & P', 'creator & P & C'], new: NEW_CHANGE },
  'POST /v1/containers/:id/secrets': { legacy: CHANGE, new: NEW_CHANGE },
  'DELETE /v1/containers/:id/secrets': { legacy: CHANGE, new: NEW_CHANGE },
  'GET /v1/containers/:id/acl': ACL_READ,
  'PUT /v1/containers/:id/acl': ACL_WRITE,
  'PATCH /v1/containers/:id/acl': ACL_WRITE,
  'DELETE /v1/containers/:id/acl': ACL_WRITE,
  'GET /v1/containers/:id/consumers': CONSUMERS,
  'POST /v1/containers/:id/consumers': CONSUMERS,
  'DELETE /v1/containers/:id/consumers': CONSUMERS,
  'GET /v1/containers/:id/consumers/:consumer': ONE_CONSUMER,
  'GET /v1/certificates': LIST,
  'GET /v1/certificates/:id': { legacy: READ, new: NEW_READ },
  'PATCH /v1/certificates/:id': { legacy: CHANGE, new: NEW_CHANGE },
  'GET /v1/certificates/:id/events': { legacy: READ, new: NEW_READ },
  'POST /v1/certificates/:id/renew': { legacy: CHANGE, new: NEW_CHANGE },
  'POST /v1/certificates/:id/rollback': { legacy: CHANGE, new: NEW_CHANGE },
  'GET /v1/orders': LIST,
  'POST /v1/orders': CREATE,
  'PUT /v1/orders': CREATE,
  'GET /v1/orders/:id': { legacy: [`${FIVE} & P`], new: ['member & P'] },
  'DELETE /v1/orders/:id': { legacy: ['admin & P'], new: ['member & P'] },
  'GET /v1/quotas': ANY_READER,
  'GET /v1/project-quotas': PROJECT_QUOTAS,
  'GET /v1/project-quotas/:project': PROJECT_QUOTAS,
  'PUT /v1/project-quotas/:project': PROJECT_QUOTAS,
  'DELETE /v1/project-quotas/:project': PROJECT_QUOTAS,
  'GET /v1/secret-stores': ANY_READER,
  'GET /v1/secret-stores/global-default': ANY_READER,
  'GET /v1/secret-stores/preferred': ANY_READER,
  'GET /v1/secret-stores/:id': ANY_READER,
  'POST /v1/secret-stores/:id/preferred': ADMIN,
  'DELETE /v1/secret-stores/:id/preferred': ADMIN,
  'GET /v1/transport_keys': ANY_READER,
  'POST /v1/transport_keys': SERVICE_ADMIN,
  'GET /v1/transport_keys/:id': ANY_READER,
  'DELETE /v1/transport_keys/:id': SERVICE_ADMIN,
  'POST /v1/bindings/:load_balancer': LIST,
  'GET /v1/cas': ANY_READER,
  'POST /v1/cas': ADMIN_OR_MEMBER,
  'GET /v1/cas/all': ADMIN,
  'GET /v1/cas/preferred': ANY_READER,
  'GET /v1/cas/global-preferred': SERVICE_ADMIN,
  'POST /v1/cas/unset-global-preferred': SERVICE_ADMIN,
  'GET /v1/cas/:id': ANY_READER,
  'DELETE /v1/cas/:id': ADMIN,
  'GET /v1/cas/:id/cacert': ANY_READER,
  'GET /v1/cas/:id/intermediates': ANY_READER,
  'GET /v1/cas/:id/crl': ANY_READER,
  'GET /v1/cas/:id/projects': SERVICE_ADMIN,
  'POST /v1/cas/:id/add-to-project': ADMIN,
  'POST /v1/cas/:id/remove-from-project': ADMIN,
  'POST /v1/cas/:id/set-preferred': ADMIN_OR_MEMBER,
  'POST /v1/cas/:id/set-global-preferred': SERVICE_ADMIN,
  'GET /v1/acme-accounts': LIST,
  'POST /v1/acme-accounts': CREATE,
  'DELETE /v1/acme-accounts/:id': CREATE,
}

/** A caller and its relation to the object. */
export type Case = {
  role: string
  isOfProject: boolean
  isCreator: boolean
  leavesItToProject: boolean
  listsCaller: boolean
}

const holds = (alternative: string, { role, isOfProject, isCreator, leavesItToProject, listsCaller }: Case): boolean =>
  alternative.split(' & ').every(condition => {
    switch (condition) {
      case 'anyone':
        return true
      case 'P':
        return isOfProject
      case 'C':
        return isCreator
      case 'pub':
        return leavesItToProject
      case 'A':
        return listsCaller
      default:
        return condition.split(' ').includes(role)
    }
  })

/** Whether the table allows a caller to call a route. */
export function isAllowed(policy: 'union' | 'legacy' | 'new', route: string, what: Case): boolean {
  const row = RIGHTS[route]
  if (row === undefined) throw new Error(`${route} has no row.`)
  const rules = policy === 'union' ? [...row.legacy, ...row.new] : row[policy]
  return rules.some(alternative => holds(alternative, what))
}
