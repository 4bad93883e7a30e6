import { type ApiError, forbidden } from '../http/errors.js'

/** Who asks, as rules see it. */
export type Who = { userId: string; projectId: string; roles: readonly string[] }

/** What is asked for, as rules see it: whose it is and what its ACL says. */
export type Target = {
  projectId: string
  creatorId: string | null
  /** False: private, only the creator and administrators of the project may use it. */
  projectAccess: boolean
  /** Users who may read it, from whichever project. */
  users: readonly string[]
}

type Rule = (who: Who, target: Target | null) => boolean

const has =
  (...roles: string[]): Rule =>
  who =>
    roles.some(role => who.roles.includes(role))
const both =
  (...rules: Rule[]): Rule =>
  (who, target) =>
    rules.every(rule => rule(who, target))
const either =
  (...rules: Rule[]): Rule =>
  (who, target) =>
    rules.some(rule => rule(who, target))

const ownProject: Rule = (who, target) => target !== null && who.projectId === target.projectId
const creator: Rule = (who, target) => target !== null && who.userId === target.creatorId
const shared: Rule = (_, target) => target?.projectAccess === true
const listed: Rule = (who, target) => target?.users.includes(who.userId) === true

const anyRole = has('admin', 'creator', 'observer', 'audit', 'key-manager:service-admin')
const consumerReaders = has('admin', 'creator', 'observer', 'audit')
const payloadReaders = has('admin', 'creator', 'observer')
const writers = has('admin', 'creator')
const projectAdmin = both(has('admin'), ownProject)
const creatorOfIt = both(has('creator'), ownProject, creator)

const legacyRead = either(both(anyRole, ownProject, shared), creatorOfIt, projectAdmin, listed)
const legacyChange = either(projectAdmin, creatorOfIt, both(has('creator'), ownProject, shared))
const legacyAcl = both(payloadReaders, ownProject)
const newUse = either(projectAdmin, both(has('member'), ownProject, either(creator, shared)))
const newRead = either(newUse, listed)

/**
 * Who may do what: under the older rules (with the role creator and its like) and under the newer ones (reader, member, admin). Which of
 * them count is a setting.
 */
export const RULES = {
  'secrets list': { legacy: payloadReaders, new: has('member') },
  'secret create': { legacy: writers, new: has('member') },
  'secret show': { legacy: legacyRead, new: either(has('admin'), newRead) },
  'secret payload': {
    legacy: either(both(payloadReaders, ownProject, shared), creatorOfIt, projectAdmin, listed),
    new: newRead,
  },
  'secret payload store': { legacy: both(writers, ownProject), new: newUse },
  'secret delete': { legacy: legacyChange, new: either(has('admin'), newUse) },
  'secret metadata read': { legacy: legacyRead, new: newRead },
  'secret metadata write': { legacy: legacyChange, new: newUse },
  'secret acl read': { legacy: legacyAcl, new: newUse },
  'secret acl write': { legacy: legacyChange, new: newUse },
  'secret consumers': { legacy: legacyRead, new: newRead },
  'secret consumer show': { legacy: either(consumerReaders, legacyRead), new: either(has('admin'), newRead) },
  'containers list': { legacy: payloadReaders, new: has('member') },
  'container create': { legacy: writers, new: has('member') },
  'container show': { legacy: legacyRead, new: newRead },
  'container delete': { legacy: either(projectAdmin, creatorOfIt), new: newUse },
  'container secrets': { legacy: legacyChange, new: newUse },
  'container acl read': { legacy: legacyAcl, new: newUse },
  'container acl write': { legacy: legacyChange, new: newUse },
  'container consumers': { legacy: legacyRead, new: newRead },
  'container consumer show': { legacy: either(consumerReaders, legacyRead), new: either(has('admin'), newRead) },
  'orders list': { legacy: payloadReaders, new: has('member') },
  'order create': { legacy: writers, new: has('member') },
  'order show': { legacy: both(anyRole, ownProject), new: both(has('member'), ownProject) },
  'order delete': { legacy: projectAdmin, new: both(has('member'), ownProject) },
  'quotas read': { legacy: anyRole, new: has('reader') },
  'project quotas': { legacy: has('key-manager:service-admin'), new: has('admin') },
  'secret stores read': { legacy: anyRole, new: has('reader') },
  'preferred store write': { legacy: has('admin'), new: has('admin') },
  'transport keys read': { legacy: anyRole, new: has('reader') },
  'transport keys write': { legacy: has('key-manager:service-admin'), new: has('admin') },
  'cas read': { legacy: anyRole, new: has('reader') },
  'cas of all': { legacy: has('admin'), new: has('admin') },
  'ca create': { legacy: has('admin'), new: has('member') },
  'ca delete': { legacy: has('admin'), new: has('admin') },
  'ca projects write': { legacy: has('admin'), new: has('admin') },
  'ca preferred write': { legacy: has('admin'), new: has('member') },
  'global preferred ca': { legacy: has('key-manager:service-admin'), new: has('admin') },
  'ca projects read': { legacy: has('key-manager:service-admin'), new: has('admin') },
  'version read': { legacy: () => true, new: () => true },
} as const satisfies Record<string, { legacy: Rule; new: Rule }>

export type Operation = keyof typeof RULES

export type Policy = 'union' | 'legacy' | 'new'

/** @param target null for what is no single object */
export function mayDo(policy: Policy, operation: Operation, who: Who, target: Target | null): boolean {
  const rules = RULES[operation]
  return (policy !== 'new' && rules.legacy(who, target)) || (policy !== 'legacy' && rules.new(who, target))
}

/** @throws ApiError 403 */
export function requireRight(policy: Policy, operation: Operation, who: Who, target: Target | null): void {
  if (!mayDo(policy, operation, who, target)) throw forbidden(`You may not do this: ${operation}.`)
}

/** Rules that need no object are checked before anything else of the request is read. */
export const NEEDS_TARGET: ReadonlySet<Operation> = new Set<Operation>(
  (Object.keys(RULES) as Operation[]).filter(operation =>
    /^(secret|container|order) (?!create|stores)/.test(operation),
  ),
)

/** A limit of the project is reached. */
export const quotaReached = (kind: string): ApiError => forbidden(`The project's quota of ${kind} is reached.`)
