import { badRequest, conflict } from '../../../http/errors.js'
import type { Created } from '../../schema/attributes.js'
import { regularExpressionProblem } from './regular-expression.js'
import type { l7Rule } from './resource.js'

export type RuleValues = Created<typeof l7Rule.attributes>
/** Attributes of a rule that depend on each other. */
export type Comparison = Pick<RuleValues, 'type' | 'compare_type' | 'key' | 'value'>

/** Maximum number of rules per policy. */
const MAX_RULES = 50

const ANY = ['REGEX', 'STARTS_WITH', 'ENDS_WITH', 'CONTAINS', 'EQUAL_TO'] as const

type Format = { pattern: RegExp; name: string }

const TOKEN: Format = { pattern: /^[A-Za-z0-9!#$%&'*+,.^_|~`-]+$/, name: 'a header or cookie name' }
const DN_FIELD: Format = { pattern: /^[A-Za-z][A-Za-z0-9-]{0,63}$/, name: 'a field name of a distinguished name' }
const HEADER_VALUE: Format = {
  pattern: /^([\x21-\x7e]+|"[\t\x20-\x7e]*")$/,
  name: 'printable ASCII, with spaces only within double quotes',
}
const COOKIE_VALUE: Format = {
  pattern: /^[\x21\x23-\x3a\x3c-\x5b\x5d-\x7e]+$/,
  name: 'printable ASCII without spaces, quotes, semicolons and backslashes',
}
const PLAIN_TEXT: Format = {
  pattern: /^(?!\s*$)[^\p{Cc}\p{Cs}\u2028\u2029]+$/u,
  name: 'text without control characters, and not only spaces',
}
const EXPRESSION: Format = { pattern: /^[\x20-\x7e]+$/, name: 'printable ASCII' }

type Requirements = {
  compareTypes: readonly Comparison['compare_type'][]
  /** `unused`: accepted but dropped; `absent`: rejected. */
  key: Format | 'unused' | 'absent'
  value: Format
}

const REQUIREMENTS: Readonly<Record<Comparison['type'], Requirements>> = {
  HOST_NAME: { compareTypes: ANY, key: 'unused', value: HEADER_VALUE },
  PATH: { compareTypes: ANY, key: 'unused', value: HEADER_VALUE },
  FILE_TYPE: { compareTypes: ['REGEX', 'EQUAL_TO'], key: 'unused', value: HEADER_VALUE },
  HEADER: { compareTypes: ANY, key: TOKEN, value: HEADER_VALUE },
  COOKIE: { compareTypes: ANY, key: TOKEN, value: COOKIE_VALUE },
  SSL_CONN_HAS_CERT: { compareTypes: ['EQUAL_TO'], key: 'absent', value: { pattern: /^true$/i, name: `'True'` } },
  SSL_VERIFY_RESULT: {
    compareTypes: ['EQUAL_TO'],
    key: 'absent',
    value: { pattern: /^\d{1,9}$/, name: 'a non-negative integer of at most 9 digits' },
  },
  SSL_DN_FIELD: { compareTypes: ANY, key: DN_FIELD, value: PLAIN_TEXT },
}

/**
 * Checks a rule as a whole, and drops a key that its type does not use.
 * @throws ApiError 400
 */
export function completeRule<T extends Comparison>(rule: T): T {
  const { type, compare_type: compareType, key, value } = rule
  const requirements = REQUIREMENTS[type]
  if (!requirements.compareTypes.includes(compareType)) {
    throw unparsable(`type ${type} does not support compare_type ${compareType}.`)
  }
  if (requirements.key === 'absent' && key !== null) throw unparsable(`type ${type} does not support a key.`)
  if (typeof requirements.key === 'object' && !requirements.key.pattern.test(key ?? '')) {
    throw unparsable(`type ${type} requires a key that is ${requirements.key.name}.`)
  }
  const format = compareType === 'REGEX' ? EXPRESSION : requirements.value
  if (!format.pattern.test(value)) throw unparsable(`the value must be ${format.name}.`)
  if (compareType === 'REGEX') {
    const problem = regularExpressionProblem(value)
    if (problem !== null) throw unparsable(`the value ${problem}.`)
  }
  return requirements.key === 'unused' ? { ...rule, key: null } : rule
}

/** @throws ApiError 409 when a policy would exceed MAX_RULES */
export function checkRuleCount(count: number): void {
  if (count > MAX_RULES) throw conflict(`An L7 policy may have at most ${MAX_RULES} rules`)
}

const unparsable = (reason: string) => badRequest(`Error parsing L7Rule: ${reason}`)
