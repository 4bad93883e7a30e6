import { badRequest } from '../../../http/errors.js'
import type { Created, Updated } from '../../schema/attributes.js'
import { invalid } from '../../schema/faults.js'
import type { l7Policy } from './resource.js'

export type PolicyValues = Omit<Created<typeof l7Policy.attributes>, 'listener_id'>
type Given = Updated<typeof l7Policy.attributes>
/** What a policy does, as far as its attributes depend on each other. */
export type Redirection = Pick<
  PolicyValues,
  'action' | 'redirect_pool_id' | 'redirect_url' | 'redirect_prefix' | 'redirect_http_code'
>
type Action = Redirection['action']

/** Action -> the attribute that it needs. */
const TARGET_OF = {
  REJECT: null,
  REDIRECT_TO_POOL: 'redirect_pool_id',
  REDIRECT_TO_URL: 'redirect_url',
  REDIRECT_PREFIX: 'redirect_prefix',
} as const satisfies Readonly<Record<Action, keyof Redirection | null>>

const REDIRECTS = ['REDIRECT_TO_POOL', 'REDIRECT_TO_URL', 'REDIRECT_PREFIX'] as const

const DEFAULT_CODE = 302

/**
 * A create body checked, without what its action has no use for.
 * @throws ApiError 400
 */
export function completePolicy<T extends Redirection>(values: T): T {
  refuseTwoTargets(values)
  return { ...values, ...redirectionOf(values.action, values) }
}

/**
 * An update body, checked against what is stored: a redirection's target without an action switches to the action that it belongs to.
 * An action that is given needs its target in the same body.
 * @throws ApiError 400
 */
export function completePolicyUpdate(stored: Redirection, values: Given): Given & Redirection {
  refuseTwoTargets(values)
  const implied = REDIRECTS.find(action => typeof values[TARGET_OF[action]] === 'string')
  const { redirect_http_code: storedCode, ...storedTargets } = stored
  const redirection = redirectionOf(values.action ?? implied ?? stored.action, {
    ...(values.action === undefined ? storedTargets : {}),
    redirect_http_code: storedCode,
    ...withoutUndefined(values),
  })
  return { ...values, ...redirection }
}

/** @throws ApiError 400 when listeners of this protocol have nothing below them */
export function checkPolicyListener(listenerProtocol: string): void {
  if (listenerProtocol === 'PROMETHEUS') throw invalid('A PROMETHEUS listener cannot have child objects.')
}

function redirectionOf(action: Action, values: Partial<Redirection>): Redirection {
  const target = TARGET_OF[action]
  if (target !== null && typeof values[target] !== 'string') {
    throw badRequest(`Invalid L7 Policy arguments: the action ${action} needs ${target}.`)
  }
  const byLocation = target === 'redirect_url' || target === 'redirect_prefix'
  return {
    action,
    redirect_pool_id: target === 'redirect_pool_id' ? (values.redirect_pool_id ?? null) : null,
    redirect_url: target === 'redirect_url' ? (values.redirect_url ?? null) : null,
    redirect_prefix: target === 'redirect_prefix' ? (values.redirect_prefix ?? null) : null,
    redirect_http_code: byLocation ? (values.redirect_http_code ?? DEFAULT_CODE) : null,
  }
}

function refuseTwoTargets({ redirect_pool_id, redirect_url, redirect_prefix }: Partial<Redirection>): void {
  if (typeof redirect_pool_id !== 'string') return
  if (typeof redirect_url !== 'string' && typeof redirect_prefix !== 'string') return
  throw badRequest('Invalid L7 Policy arguments: a pool and a URL or prefix cannot be given together.')
}

const withoutUndefined = (values: Given): Partial<Redirection> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined))
