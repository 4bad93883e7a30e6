import type { GoldenCase } from './cases.js'
import { aPolicy, aRule } from './l7-models.js'
import { aListener, aMember, aPool, aTree, someFacts, uuid } from './models.js'

const toPool = (pool: number) => ({ action: 'REDIRECT_TO_POOL' as const, redirectPoolId: uuid(3, pool) })

export const l7Cases: GoldenCase[] = [
  {
    name: 'l7-policies',
    facts: someFacts(),
    tree: aTree({
      listeners: [
        aListener(1, {
          defaultPoolId: uuid(3, 1),
          insertHeaders: { 'X-Forwarded-Port': 'true' },
          l7Policies: [
            aPolicy(3, { rules: [aRule(31, { value: '/late' })] }),
            aPolicy(1, {
              rules: [
                aRule(11, { type: 'HOST_NAME', compareType: 'REGEX', value: `^(www|'api')\\.example\\.org$` }),
                aRule(12, { type: 'HEADER', compareType: 'EQUAL_TO', key: 'X-Token', value: '"a b"', invert: true }),
              ],
            }),
            aPolicy(2, { ...toPool(2), rules: [aRule(21, { type: 'COOKIE', compareType: 'CONTAINS', key: 'beta', value: '-i' })] }),
            aPolicy(4, { ...toPool(1), rules: [aRule(41, { type: 'FILE_TYPE', compareType: 'EQUAL_TO', value: 'jpg' })] }),
            aPolicy(5, { ...toPool(2), rules: [aRule(51, { type: 'FILE_TYPE', compareType: 'REGEX', value: '\\.(png|gif)$' })] }),
            aPolicy(6, {
              action: 'REDIRECT_TO_URL',
              redirectUrl: `https://example.org/%41?q=%[src]&it's="#{}\\`,
              redirectHttpCode: 308,
              rules: [aRule(61, { type: 'HEADER', compareType: 'CONTAINS', key: 'User-Agent', value: 'KHTML, like' })],
            }),
            aPolicy(7, {
              action: 'REDIRECT_PREFIX',
              redirectPrefix: 'https://example.org/old',
              rules: [aRule(71, { type: 'HOST_NAME', compareType: 'EQUAL_TO', value: 'old.example.org:8080' })],
            }),
            aPolicy(8),
            aPolicy(9, { adminStateUp: false, rules: [aRule(91)] }),
            aPolicy(10, { change: 'delete', rules: [aRule(101)] }),
            aPolicy(11, { rules: [aRule(111, { adminStateUp: false }), aRule(112, { change: 'delete' })] }),
            aPolicy(12, { ...toPool(3), rules: [aRule(121)] }),
            aPolicy(13, { ...toPool(4), rules: [aRule(131)] }),
          ],
        }),
        aListener(2, { l7Policies: [aPolicy(14, { ...toPool(2), rules: [aRule(141, { adminStateUp: false }), aRule(142)] })] }),
        aListener(3, { protocol: 'TCP', l7Policies: [aPolicy(15, { rules: [aRule(151)] })] }),
      ],
      pools: [
        aPool(1, { members: [aMember(1)] }),
        aPool(2, { members: [aMember(2)] }),
        aPool(3, { adminStateUp: false, members: [aMember(3)] }),
        aPool(4, { change: 'delete', members: [aMember(4)] }),
      ],
    }),
  },
  {
    name: 'l7-most-rules',
    facts: someFacts(),
    tree: aTree({
      listeners: [
        aListener(1, {
          l7Policies: [
            aPolicy(1, { ...toPool(1), rules: [aRule(1)] }),
            aPolicy(2, {
              action: 'REDIRECT_TO_URL',
              redirectUrl: `https://example.org/${'x'.repeat(230)}`,
              rules: Array.from({ length: 50 }, (_, index) => aRule(100 + index, { value: '/'.repeat(255), invert: true })),
            }),
          ],
        }),
      ],
      pools: [aPool(1)],
    }),
  },
]
