import type { Random } from '../../inputs/random.js'
import type { Answer, Body, Kinds, Model, Policy } from './model.js'

const MAX_POLICIES = 6
const MAX_RULES = 4

/** All that clients can vary: the part of a request that a rule reads, and whether clients' requests match. */
const RULES: readonly { isMatched: boolean; rule: (random: Random) => Body }[] = [
  { isMatched: true, rule: () => ({ type: 'PATH', compare_type: 'STARTS_WITH', value: '/' }) },
  { isMatched: true, rule: () => ({ type: 'PATH', compare_type: 'EQUAL_TO', value: '/slow' }) },
  { isMatched: true, rule: () => ({ type: 'PATH', compare_type: 'REGEX', value: '^/(download)?$' }) },
  { isMatched: true, rule: () => ({ type: 'HEADER', key: 'Upgrade', compare_type: 'EQUAL_TO', value: 'websocket' }) },
  { isMatched: false, rule: random => ({ type: 'PATH', compare_type: 'STARTS_WITH', value: `/never-${random(100)}` }) },
  { isMatched: false, rule: () => ({ type: 'HOST_NAME', compare_type: 'ENDS_WITH', value: '.invalid' }) },
  { isMatched: false, rule: () => ({ type: 'COOKIE', key: 'never', compare_type: 'CONTAINS', value: 'never' }) },
  { isMatched: false, rule: () => ({ type: 'FILE_TYPE', compare_type: 'EQUAL_TO', value: 'never' }) },
]

export function l7Changes({ random, pools, listeners, pick }: Model): Kinds {
  const pickPolicy = (fits: (policy: Policy) => boolean = () => true) =>
    pick(listeners.flatMap(listener => listener.policies.filter(fits).map(policy => ({ listener, policy }))))
  const ruleFor = ({ isMatched }: Policy) => pick(RULES.filter(rule => rule.isMatched === isMatched))?.rule(random)

  return {
    'L7 policy created': () => {
      const listener = pick(
        listeners.filter(({ protocol, policies }) => protocol === 'HTTP' && policies.length < MAX_POLICIES),
      )
      const pool = pick(pools.filter(({ protocol, isExtra }) => protocol === 'HTTP' && !isExtra))
      if (listener === null || pool === null) return null
      const isMatched = random(2) === 0
      const refusal = pick([
        { action: 'REJECT' },
        { action: 'REDIRECT_TO_URL', redirect_url: 'http://other.invalid/' },
        { action: 'REDIRECT_PREFIX', redirect_prefix: 'http://other.invalid/' },
      ])
      const poolId = isMatched ? pool.id : null
      const does = isMatched ? { action: 'REDIRECT_TO_POOL', redirect_pool_id: poolId } : refusal
      const after = (answer: Answer) =>
        listener.policies.push({ id: answer?.l7policy?.id ?? '', isMatched, isEnabled: true, poolId, ruleIds: [] })
      const l7policy = { listener_id: listener.id, position: 1 + random(3), ...does }
      return { method: 'POST', path: '/l7policies', body: { l7policy }, after }
    },
    'L7 policy moved': () => {
      const chosen = pickPolicy()
      const l7policy = { position: 1 + random(3) }
      return chosen && { method: 'PUT', path: `/l7policies/${chosen.policy.id}`, body: { l7policy } }
    },
    'L7 policy disabled or enabled': () => {
      const chosen = pickPolicy()
      if (chosen === null) return null
      chosen.policy.isEnabled = !chosen.policy.isEnabled
      const l7policy = { admin_state_up: chosen.policy.isEnabled }
      return { method: 'PUT', path: `/l7policies/${chosen.policy.id}`, body: { l7policy } }
    },
    'L7 policy deleted': () => {
      const chosen = pickPolicy()
      if (chosen === null) return null
      const { listener, policy } = chosen
      const after = () => listener.policies.splice(listener.policies.indexOf(policy), 1)
      return { method: 'DELETE', path: `/l7policies/${policy.id}`, after }
    },
    'L7 rule created': () => {
      const chosen = pickPolicy(({ ruleIds }) => ruleIds.length < MAX_RULES)
      if (chosen === null) return null
      const { policy } = chosen
      const after = (answer: Answer) => policy.ruleIds.push(answer?.rule?.id ?? '')
      return { method: 'POST', path: `/l7policies/${policy.id}/rules`, body: { rule: ruleFor(policy) }, after }
    },
    'L7 rule changed': () => {
      const chosen = pickPolicy(({ ruleIds }) => ruleIds.length > 0)
      if (chosen === null) return null
      const { policy } = chosen
      return {
        method: 'PUT',
        path: `/l7policies/${policy.id}/rules/${pick(policy.ruleIds)}`,
        body: { rule: ruleFor(policy) },
      }
    },
    'L7 rule deleted': () => {
      const chosen = pickPolicy(({ ruleIds }) => ruleIds.length > 0)
      if (chosen === null) return null
      const { policy } = chosen
      const id = pick(policy.ruleIds)
      policy.ruleIds = policy.ruleIds.filter(other => other !== id)
      return { method: 'DELETE', path: `/l7policies/${policy.id}/rules/${id}` }
    },
  }
}
