import type { Answer } from '../../../api/answer.js'
import { many } from '../../../database/query.js'
import { and, type Fragment, sql, unprepared } from '../../../database/sql.js'
import { badRequest } from '../../../http/errors.js'
import {
  type IdentityCall,
  type IdentityRoute,
  listAnswer,
  listForm,
  queryParameter,
  route,
  type Service,
} from '../../dialect.js'
import { readers } from '../../policy.js'

const FILTERS = [
  queryParameter('user.id', 'Return only assignments to this user.'),
  queryParameter('group.id', 'Return only assignments to this group.'),
  queryParameter('role.id', 'Return only assignments of this role.'),
  queryParameter('scope.project.id', 'Return only assignments on this project.'),
  queryParameter('scope.domain.id', 'Return only assignments on this domain.'),
  queryParameter('scope.system', 'Return only assignments on the system.'),
  queryParameter('include_subtree', 'Include assignments on the descendants of scope.project.id.'),
  queryParameter('effective', 'Return effective assignments: users instead of groups, and implied roles.'),
  queryParameter('include_names', 'Include the names of users, groups, roles, projects and domains.'),
]

export const roleAssignmentRoutes: readonly IdentityRoute[] = [
  route({
    ...{ method: 'GET', path: '/v3/role_assignments', right: readers, group: 'role_assignments', status: 200 },
    summary: 'List role assignments',
    parameters: FILTERS,
    answer: listForm('role_assignments'),
    handle: listAssignments,
  }),
]

type Assignment = {
  role_id: string
  role_name: string
  role_domain_id: string | null
  role_domain_name: string | null
  /** In an effective list, the group through which the user has the role. */
  via_group_id: string | null
  /** The assigned role, if it implies this one. */
  prior_role_id: string | null
  user_id: string | null
  user_name: string | null
  group_id: string | null
  group_name: string | null
  /** The domain of the user or group. */
  actor_domain_id: string
  actor_domain_name: string
  project_id: string | null
  project_name: string | null
  project_domain_id: string | null
  project_domain_name: string | null
  domain_id: string | null
  domain_name: string | null
}

// Role assignments as stored.
const DIRECT = sql`
  SELECT role_id, user_id, group_id, project_id, domain_id, NULL AS via_group_id, NULL AS prior_role_id FROM assignment`

// Effective role assignments: groups replaced by their users, and implied roles added.
const EFFECTIVE = sql`
  SELECT role_id, user_id, NULL AS group_id, project_id, domain_id, via_group_id,
         nullif(assigned_role_id, role_id) AS prior_role_id FROM expanded`

const EXPANDED = sql`
  WITH RECURSIVE expanded AS (
    SELECT a.role_id, coalesce(a.user_id, m.user_id) AS user_id, a.project_id, a.domain_id,
           a.group_id AS via_group_id, a.role_id AS assigned_role_id
      FROM assignment a LEFT JOIN group_member m ON m.group_id = a.group_id
     WHERE coalesce(a.user_id, m.user_id) IS NOT NULL
    UNION
    SELECT i.implied_role_id, e.user_id, e.project_id, e.domain_id, e.via_group_id, e.assigned_role_id
      FROM expanded e JOIN implied_role i ON i.prior_role_id = e.role_id)`

const inSubtree = (project: string) => sql`a.project_id IN (
  WITH RECURSIVE tree AS (
    SELECT id FROM project WHERE id = ${project} UNION SELECT p.id FROM project p JOIN tree t ON p.parent_id = t.id)
  SELECT id FROM tree)`

/** Query parameter -> condition. */
const CONDITIONS: Readonly<Record<string, (value: string) => Fragment>> = {
  'user.id': id => sql`a.user_id = ${id}`,
  'group.id': id => sql`a.group_id = ${id}`,
  'role.id': id => sql`a.role_id = ${id}`,
  'scope.domain.id': id => sql`a.domain_id = ${id}`,
  'scope.system': given => sql`a.project_id IS NULL AND a.domain_id IS NULL AND ${given !== ''}`,
}

async function listAssignments({ database }: Service, call: IdentityCall): Promise<Answer> {
  const query = (name: string) => call.argument(name)
  const effective = isSet(query('effective'))
  if (effective && query('group.id') !== undefined) {
    throw badRequest('Combining effective and group filter will always result in an empty list.')
  }
  const project = query('scope.project.id')
  const withSubtree = isSet(query('include_subtree'))
  const conditions = [
    // A role of a domain takes effect by the roles that it implies.
    effective ? sql`r.domain_id IS NULL` : sql`true`,
    ...Object.entries(CONDITIONS).flatMap(([name, condition]) => {
      const value = query(name)
      return value === undefined ? [] : [condition(value)]
    }),
    ...(project === undefined ? [] : [withSubtree ? inSubtree(project) : sql`a.project_id = ${project}`]),
  ]
  const rows = await many(
    database,
    unprepared(sql<Assignment>`
      ${effective ? EXPANDED : sql``}
      SELECT a.role_id, a.user_id, a.group_id, a.project_id, a.domain_id, a.via_group_id, a.prior_role_id,
             r.name AS role_name, rd.id AS role_domain_id, rd.name AS role_domain_name, u.name AS user_name, g.name AS group_name,
             ad.id AS actor_domain_id, ad.name AS actor_domain_name,
             p.name AS project_name, pd.id AS project_domain_id, pd.name AS project_domain_name, d.name AS domain_name
        FROM (${effective ? EFFECTIVE : DIRECT}) a
        JOIN role r ON r.id = a.role_id
        LEFT JOIN domain rd ON rd.id = r.domain_id
        LEFT JOIN local_user u ON u.id = a.user_id
        LEFT JOIN user_group g ON g.id = a.group_id
        LEFT JOIN domain ad ON ad.id = coalesce(u.domain_id, g.domain_id)
        LEFT JOIN project p ON p.id = a.project_id
        LEFT JOIN domain pd ON pd.id = p.domain_id
        LEFT JOIN domain d ON d.id = a.domain_id
       WHERE ${and(conditions)}
       ORDER BY a.user_id, a.group_id, a.project_id, a.domain_id, a.role_id`),
  )
  const withNames = isSet(query('include_names'))
  return listAnswer(
    call,
    'role_assignments',
    rows.map(row => present(call, row, withNames)),
  )
}

/** `?effective`, `?effective=True` and `?effective=1` set it; `?effective=0` does not. */
const isSet = (value: string | undefined) => value !== undefined && !/^(0|false|no|off)$/i.test(value)

function present(call: IdentityCall, row: Assignment, withNames: boolean): object {
  const names = <T extends object>(value: T) => (withNames ? value : {})
  const actorDomain = names({ domain: { id: row.actor_domain_id, name: row.actor_domain_name } })
  const projectDomain = names({ domain: { id: row.project_domain_id, name: row.project_domain_name } })
  const roleDomain =
    row.role_domain_id === null ? {} : names({ domain: { id: row.role_domain_id, name: row.role_domain_name } })
  const actor =
    row.user_id !== null
      ? { user: { id: row.user_id, ...names({ name: row.user_name }), ...actorDomain } }
      : { group: { id: row.group_id, ...names({ name: row.group_name }), ...actorDomain } }
  return {
    role: { id: row.role_id, ...names({ name: row.role_name }), ...roleDomain },
    ...actor,
    scope: scopeOf(row, names({ name: row.project_name, ...projectDomain }), names({ name: row.domain_name })),
    links: linksOf(call, row),
  }
}

function scopeOf(row: Assignment, project: object, domain: object): object {
  if (row.project_id !== null) return { project: { id: row.project_id, ...project } }
  if (row.domain_id !== null) return { domain: { id: row.domain_id, ...domain } }
  return { system: { all: true } }
}

function linksOf(call: IdentityCall, row: Assignment): object {
  const groupId = row.via_group_id ?? row.group_id
  const actor = groupId !== null ? `groups/${groupId}` : `users/${row.user_id}`
  const target =
    row.project_id !== null
      ? `projects/${row.project_id}`
      : row.domain_id !== null
        ? `domains/${row.domain_id}`
        : 'system'
  const v3 = `${call.base}/v3`
  return {
    assignment: `${v3}/${target}/${actor}/roles/${row.prior_role_id ?? row.role_id}`,
    ...(row.via_group_id !== null && { membership: `${v3}/groups/${row.via_group_id}/users/${row.user_id}` }),
    ...(row.prior_role_id !== null && { prior_role: `${v3}/roles/${row.prior_role_id}` }),
  }
}
