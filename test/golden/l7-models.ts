import type { L7PolicyNode, L7RuleNode } from '../../controller/load-balancer/tree/tree.js'
import { uuid } from './models.js'

/** Matches when its rules do, and rejects. */
export function aPolicy(number: number, change: Partial<L7PolicyNode> = {}): L7PolicyNode {
  return {
    id: uuid(6, number),
    change: 'create',
    adminStateUp: true,
    action: 'REJECT',
    position: number,
    redirectPoolId: null,
    redirectUrl: null,
    redirectPrefix: null,
    redirectHttpCode: null,
    rules: [],
    ...change,
  }
}

/** Matches paths that begin with /api. */
export function aRule(number: number, change: Partial<L7RuleNode> = {}): L7RuleNode {
  return {
    id: uuid(0, number),
    change: 'create',
    adminStateUp: true,
    type: 'PATH',
    compareType: 'STARTS_WITH',
    key: null,
    value: '/api',
    invert: false,
    ...change,
  }
}
