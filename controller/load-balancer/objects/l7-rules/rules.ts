import { badRequest, conflict } from '../../../http/errors.js'
import type { Created } from '../../schema/attributes.js'
import { regularExpressionProblem } from './regular-expression.js'
import type { l7Rule } from './resource.js'

export type RuleValues = Created<typeof l7Rule.attributes>
/** What a rule compares: attributes that depend on each other. */
export type Comparison = Pick<RuleValues, 'type' | 'compare_type' | 'key' | 'value'>

/** Most rules that one policy may have. */
const MOST_RULES = 50

const ANY = ['REGEX', 'STARTS_WITH', 'ENDS_WITH', 'CONTAINS', 'EQUAL_TO'] as const

type Form = { pattern: RegExp; what: string }

const TOKEN: Form = { pattern: /^[A-Za-z0-9!#$%&'*+,.^_|~`-]+$/, what: 'the name of a header or cookie' }
const DN_FIELD: Form = { pattern: /^[A-Za-z][A-Za-z0-9-]*$/, what: 'the name of a field of a distinguished name' }
const HEADER_VALUE: Form = {
  pattern: /^([\x21-\x7e]+|"[\t\x20-\x7e]*")$/,
  what: 'printable ASCII, with blanks only within double quotes',
}
const COOKIE_VALUE: Form = {
  pattern: /^[\x21\x23-\x3a\x3c-\x5b\x5d-\x7e]+$/,
  what: 'printable ASCII without blanks, quotes, semicolons and backslashes',
}
const PLAIN_TEXT: Form = { pattern: /^[^\p{Cc}]+$/u, what: 'text without control characters' }

const EXPRESSION: Form = { pattern: /^[\x20-\x7e]+$/, what: 'printable ASCII' }

type Requirements = {
  compareTypes: readonly Comparison['compare_type'][]
  /** `unused`: taken and dropped; `absent`: refused. */
  key: Form | 'unused' | 'absent'
  value: Form
}

const REQUIREMENTS: Readonly<Record<Comparison['type'], Requirements>> = {
  HOST_NAME: { compareTypes: ANY, key: 'unused', value: HEADER_VALUE },
  PATH: { compareTypes: ANY, key: 'unused', value: HEADER_VALUE },
  FILE_TYPE: { compareTypes: ['REGEX', 'EQUAL_TO'], key: 'unused', value: HEADER_VALUE },
  HEADER: { compareTypes: ANY, key: TOKEN, value: HEADER_VALUE },
  COOKIE: { compareTypes: ANY, key: TOKEN, value: COOKIE_VALUE },
  SSL_CONN_HAS_CERT: { compareTypes: ['EQUAL_TO'], key: 'absent', value: { pattern: /^true$/i, what: `'True'` } },
  SSL_VERIFY_RESULT: {
    compareTypes: ['EQUAL_TO'],
    key: 'absent',
    value: { pattern: /^\d{1,9}$/, what: 'an integer that is not negative' },
  },
  SSL_DN_FIELD: { compareTypes: ANY, key: DN_FIELD, value: PLAIN_TEXT },
}

/**
 * A rule checked as a whole, without a key that its type has no use for.
 * @throws ApiError 400
 */
export function completeRule<T extends Comparison>(rule: T): T {
  const { type, compare_type: compareType, key, value } = rule
  const requirements = REQUIREMENTS[type]
  if (!requirements.compareTypes.includes(compareType)) {
    throw unparsable(`the type ${type} cannot be compared by ${compareType}.`)
  }
  if (requirements.key === 'absent' && key !== null) throw unparsable(`the type ${type} has no key.`)
  if (typeof requirements.key === 'object' && !requirements.key.pattern.test(key ?? '')) {
    throw unparsable(`the type ${type} needs a key that is ${requirements.key.what}.`)
  }
  const form = compareType === 'REGEX' ? EXPRESSION : requirements.value
  if (!form.pattern.test(value)) throw unparsable(`the value must be ${form.what}.`)
  if (compareType === 'REGEX') {
    const problem = regularExpressionProblem(value)
    if (problem !== null) throw unparsable(`the value ${problem}.`)
  }
  return requirements.key === 'unused' ? { ...rule, key: null } : rule
}

/** @throws ApiError 409 when a policy would have more rules than it may */
export function checkRuleCount(count: number): void {
  if (count > MOST_RULES) throw conflict(`An L7 policy may have at most ${MOST_RULES} rules`)
}

const unparsable = (why: string) => badRequest(`Error parsing L7Rule: ${why}`)
