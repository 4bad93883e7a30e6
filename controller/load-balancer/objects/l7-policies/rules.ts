import { badRequest } from '../../../http/errors.js'
import type { Created, Updated } from '../../schema/attributes.js'
import { invalid } from '../../schema/faults.js'
import type { l7Policy } from './resource.js'

export type PolicyValues = Omit<Created<typeof l7Policy.attributes>, 'listener_id'>
type Given = Updated<typeof l7Policy.attributes>
/** Attributes of a policy that depend on each other. */
export type Redirection = Pick<
  PolicyValues,
  'action' | 'redirect_pool_id' | 'redirect_url' | 'redirect_prefix' | 'redirect_http_code'
>
type Action = Redirection['action']

/** Action -> attribute that it requires. */
const TARGETS = {
  REJECT: null,
  REDIRECT_TO_POOL: 'redirect_pool_id',
  REDIRECT_TO_URL: 'redirect_url',
  REDIRECT_PREFIX: 'redirect_prefix',
} as const satisfies Readonly<Record<Action, keyof Redirection | null>>

const REDIRECTS = ['REDIRECT_TO_POOL', 'REDIRECT_TO_URL', 'REDIRECT_PREFIX'] as const

const DEFAULT_CODE = 302

/**
 * Checks a create body, and drops attributes that its action does not use.
 * @throws ApiError 400
 */
export function completePolicy<T extends Redirection>(values: T): T {
  refuseTwoTargets(values)
  return { ...values, ...completeRedirection(values.action, values) }
}

/**
 * Checks an update body against the stored values. A target without an action switches to the action of that
 * target. A given action needs its target in the same body.
 * @throws ApiError 400
 */
export function completePolicyUpdate(stored: Redirection, values: Given): Given & Redirection {
  refuseTwoTargets(values)
  const implied = REDIRECTS.find(action => typeof values[TARGETS[action]] === 'string')
  const { redirect_http_code: storedCode, ...storedTargets } = stored
  const redirection = completeRedirection(values.action ?? implied ?? stored.action, {
    ...(values.action === undefined ? storedTargets : {}),
    redirect_http_code: storedCode,
    ...withoutUndefined(values),
  })
  return { ...values, ...redirection }
}

/** @throws ApiError 400 when listeners of this protocol cannot have child objects */
export function checkPolicyListener(listenerProtocol: string): void {
  if (listenerProtocol === 'PROMETHEUS') throw invalid('A PROMETHEUS listener cannot have child objects.')
}

function completeRedirection(action: Action, values: Partial<Redirection>): Redirection {
  const target = TARGETS[action]
  if (target !== null && typeof values[target] !== 'string') {
    throw badRequest(`Invalid L7 Policy arguments: action ${action} requires ${target}.`)
  }
  const isRedirect = target === 'redirect_url' || target === 'redirect_prefix'
  return {
    action,
    redirect_pool_id: target === 'redirect_pool_id' ? (values.redirect_pool_id ?? null) : null,
    redirect_url: target === 'redirect_url' ? (values.redirect_url ?? null) : null,
    redirect_prefix: target === 'redirect_prefix' ? (values.redirect_prefix ?? null) : null,
    redirect_http_code: isRedirect ? (values.redirect_http_code ?? DEFAULT_CODE) : null,
  }
}

function refuseTwoTargets({ redirect_pool_id, redirect_url, redirect_prefix }: Partial<Redirection>): void {
  if (typeof redirect_pool_id !== 'string') return
  if (typeof redirect_url !== 'string' && typeof redirect_prefix !== 'string') return
  throw badRequest(
    'Invalid L7 Policy arguments: redirect_pool_id cannot be combined with redirect_url or redirect_prefix.',
  )
}

const withoutUndefined = (values: Given): Partial<Redirection> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined))
