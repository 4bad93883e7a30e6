import { type ApiError, forbidden } from '../http/errors.js'

/** The caller, as rules see it. */
export type Requester = { userId: string; projectId: string; roles: readonly string[] }

/** The object, as rules see it: its owner and its ACL. */
export type Target = {
  projectId: string
  creatorId: string | null
  /** False: private. Only the creator and the project's administrators may use it. */
  projectAccess: boolean
  /** Users of any project who may read it. */
  users: readonly string[]
}

type Rule = (requester: Requester, target: Target | null) => boolean

const hasRole =
  (...roles: string[]): Rule =>
  requester =>
    roles.some(role => requester.roles.includes(role))
const all =
  (...rules: Rule[]): Rule =>
  (requester, target) =>
    rules.every(rule => rule(requester, target))
const any =
  (...rules: Rule[]): Rule =>
  (requester, target) =>
    rules.some(rule => rule(requester, target))

const ownProject: Rule = (requester, target) => target !== null && requester.projectId === target.projectId
const creator: Rule = (requester, target) => target !== null && requester.userId === target.creatorId
const shared: Rule = (_, target) => target?.projectAccess === true
const inAcl: Rule = (requester, target) => target?.users.includes(requester.userId) === true

const anyRole = hasRole('admin', 'creator', 'observer', 'audit', 'key-manager:service-admin')
const consumerReaders = hasRole('admin', 'creator', 'observer', 'audit')
const payloadReaders = hasRole('admin', 'creator', 'observer')
const writers = hasRole('admin', 'creator')
const projectAdmin = all(hasRole('admin'), ownProject)
const creatorOfTarget = all(hasRole('creator'), ownProject, creator)

const legacyRead = any(all(anyRole, ownProject, shared), creatorOfTarget, projectAdmin, inAcl)
const legacyChange = any(projectAdmin, creatorOfTarget, all(hasRole('creator'), ownProject, shared))
const legacyAcl = all(payloadReaders, ownProject)
const newUse = any(projectAdmin, all(hasRole('member'), ownProject, any(creator, shared)))
const newRead = any(newUse, inAcl)

/**
 * Who may do what, by Barbican's legacy rules (creator, observer, audit ...) and its new ones (reader, member,
 * admin). The setting `policy` chooses between them.
 */
export const RULES = {
  'secrets list': { legacy: payloadReaders, new: hasRole('member') },
  'secret create': { legacy: writers, new: hasRole('member') },
  'secret show': { legacy: legacyRead, new: any(hasRole('admin'), newRead) },
  'secret payload': {
    legacy: any(all(payloadReaders, ownProject, shared), creatorOfTarget, projectAdmin, inAcl),
    new: newRead,
  },
  'secret payload store': { legacy: all(writers, ownProject), new: newUse },
  'secret delete': { legacy: legacyChange, new: any(hasRole('admin'), newUse) },
  'secret metadata read': { legacy: legacyRead, new: newRead },
  'secret metadata write': { legacy: legacyChange, new: newUse },
  'secret acl read': { legacy: legacyAcl, new: newUse },
  'secret acl write': { legacy: legacyChange, new: newUse },
  'secret consumers': { legacy: legacyRead, new: newRead },
  'secret consumer show': { legacy: any(consumerReaders, legacyRead), new: any(hasRole('admin'), newRead) },
  'containers list': { legacy: payloadReaders, new: hasRole('member') },
  'container create': { legacy: writers, new: hasRole('member') },
  'container show': { legacy: legacyRead, new: newRead },
  'container delete': { legacy: any(projectAdmin, creatorOfTarget), new: newUse },
  'container secrets': { legacy: legacyChange, new: newUse },
  'container acl read': { legacy: legacyAcl, new: newUse },
  'container acl write': { legacy: legacyChange, new: newUse },
  'container consumers': { legacy: legacyRead, new: newRead },
  'container consumer show': { legacy: any(consumerReaders, legacyRead), new: any(hasRole('admin'), newRead) },
  'certificates list': { legacy: payloadReaders, new: hasRole('member') },
  'certificate show': { legacy: legacyRead, new: newRead },
  'certificate change': { legacy: legacyChange, new: newUse },
  'binding create': { legacy: payloadReaders, new: hasRole('member') },
  'orders list': { legacy: payloadReaders, new: hasRole('member') },
  'order create': { legacy: writers, new: hasRole('member') },
  'order show': { legacy: all(anyRole, ownProject), new: all(hasRole('member'), ownProject) },
  'order delete': { legacy: projectAdmin, new: all(hasRole('member'), ownProject) },
  'quotas read': { legacy: anyRole, new: hasRole('reader') },
  'project quotas': { legacy: hasRole('key-manager:service-admin'), new: hasRole('admin') },
  'secret stores read': { legacy: anyRole, new: hasRole('reader') },
  'preferred store write': { legacy: hasRole('admin'), new: hasRole('admin') },
  'transport keys read': { legacy: anyRole, new: hasRole('reader') },
  'transport keys write': { legacy: hasRole('key-manager:service-admin'), new: hasRole('admin') },
  'cas read': { legacy: anyRole, new: hasRole('reader') },
  'cas of all': { legacy: hasRole('admin'), new: hasRole('admin') },
  'ca of another project': { legacy: hasRole('admin', 'key-manager:service-admin'), new: hasRole('admin') },
  'ca create': { legacy: hasRole('admin'), new: hasRole('member') },
  'ca delete': { legacy: hasRole('admin'), new: hasRole('admin') },
  'ca projects write': { legacy: hasRole('admin'), new: hasRole('admin') },
  'ca preferred write': { legacy: hasRole('admin'), new: hasRole('member') },
  'global preferred ca': { legacy: hasRole('key-manager:service-admin'), new: hasRole('admin') },
  'ca projects read': { legacy: hasRole('key-manager:service-admin'), new: hasRole('admin') },
  'acme accounts read': { legacy: payloadReaders, new: hasRole('member') },
  'acme account write': { legacy: writers, new: hasRole('member') },
  'version read': { legacy: () => true, new: () => true },
} as const satisfies Record<string, { legacy: Rule; new: Rule }>

export type Operation = keyof typeof RULES

export type Policy = 'union' | 'legacy' | 'new'

/** @param target null when the operation has no single object */
export function isPermitted(
  policy: Policy,
  operation: Operation,
  requester: Requester,
  target: Target | null,
): boolean {
  const rules = RULES[operation]
  return (policy !== 'new' && rules.legacy(requester, target)) || (policy !== 'legacy' && rules.new(requester, target))
}

/** @throws ApiError 403 */
export function requireRight(policy: Policy, operation: Operation, requester: Requester, target: Target | null): void {
  if (isPermitted(policy, operation, requester, target)) return
  throw forbidden(`Policy does not allow "${operation}" ${reasonOf(requester, target)}.`)
}

function reasonOf({ userId, projectId, roles }: Requester, target: Target | null): string {
  if (target !== null && target.projectId !== projectId) return 'on an object of another project'
  if (target !== null && !target.projectAccess && target.creatorId !== userId)
    return 'on a private object of another user'
  return `with the roles ${roles.join(', ').slice(0, 200)}`
}

/** Operations whose rules need an object. All other rules are checked before the request is read any further. */
export const NEEDS_TARGET: ReadonlySet<Operation> = new Set<Operation>(
  (Object.keys(RULES) as Operation[]).filter(operation =>
    /^(secret|container|certificate|order) (?!create|stores)/.test(operation),
  ),
)

export const quotaReached = (kind: string): ApiError =>
  forbidden(`The project has reached its quota of ${kind}: delete some, or ask an administrator for more.`)
