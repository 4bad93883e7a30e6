import { renderDesired } from '../../controller/provider/amphora/rendering/desired.js'
import { aPolicy, aRule } from '../golden/l7-models.js'
import { aListener, aMember, aMonitor, aPool, aTree, someFacts, uuid } from '../golden/models.js'
import { percentile } from './measure.js'

const LISTENERS = 50
const MEMBERS = 20
const ROUNDS = 60

/**
 * Measures rendering an amphora's desired state for a load balancer with many listeners, each with its own
 * pool, without L7 policies and with some. @returns a table, as Markdown
 */
export function benchRendering(): string {
  const rows = [0, 1, 5, 10].map(policies => {
    const tree = treeWith(policies)
    const times: number[] = []
    let bytes = 0
    // the first rounds warm up the compiler
    for (let round = -20; round < ROUNDS; round++) {
      const started = performance.now()
      const { haproxy } = renderDesired(tree, someFacts())
      if (round >= 0) times.push(performance.now() - started)
      bytes = haproxy?.text.length ?? 0
    }
    times.sort((a, b) => a - b)
    const cells = [percentile(times, 0), percentile(times, 0.5), percentile(times, 0.99)].map(time => time.toFixed(1))
    return `| ${policies} | ${cells.join(' | ')} | ${Math.round(bytes / 1024)} |`
  })
  return [
    `${LISTENERS} listeners with a pool of ${MEMBERS} members and a health monitor each, rendered ${ROUNDS} times in one process; milliseconds.`,
    `| L7 policies per listener | fastest | median | 99 % | KiB of configuration |\n| ---: | ---: | ---: | ---: | ---: |\n${rows.join('\n')}`,
  ].join('\n\n')
}

function treeWith(policies: number) {
  const numbers = Array.from({ length: LISTENERS }, (_, index) => index + 1)
  const members = (pool: number) =>
    Array.from({ length: MEMBERS }, (_, index) =>
      aMember(pool * 100 + index, { serverNumber: index + 1, address: `10.0.${pool}.${index + 1}` }),
    )
  return aTree({
    listeners: numbers.map(number =>
      aListener(number, {
        defaultPoolId: uuid(3, number),
        l7Policies: Array.from({ length: policies }, (_, index) => policy(number, index)),
      }),
    ),
    pools: numbers.map(number => aPool(number, { healthMonitor: aMonitor(number), members: members(number) })),
  })
}

/** The actions take turns, and so do the types of rules; the pool is the listener's own. */
function policy(listener: number, index: number) {
  const id = listener * 100 + index
  const redirect = {
    redirectUrl: 'https://www.example.org/',
    redirectPrefix: 'https://www.example.org',
    redirectHttpCode: 301,
  }
  const action = (['REDIRECT_TO_POOL', 'REJECT', 'REDIRECT_TO_URL', 'REDIRECT_PREFIX'] as const)[index % 4] ?? 'REJECT'
  return aPolicy(id, {
    ...redirect,
    action,
    position: index + 1,
    redirectPoolId: uuid(3, listener),
    rules: [
      aRule(id * 10, { value: `/api/v${index}` }),
      aRule(id * 10 + 1, { type: 'HOST_NAME', compareType: 'REGEX', value: '^(www|api)\\.example\\.(org|com)$' }),
    ],
  })
}
