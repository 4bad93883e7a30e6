import t from 'tap'
import { type ProbeStatus, reportedByOvn } from '../../../../controller/provider/ovn/health/reported.js'
import { aListener, aMember, aMonitor, aPool, aTree, uuid } from '../../../golden/models.js'

const monitor = aMonitor(1, { type: 'TCP' })
const scene = ({
  tree = {},
  listener = {},
  pool = {},
}: Record<'tree' | 'listener' | 'pool', object> | Record<string, never> = {}) =>
  aTree({
    listeners: [aListener(1, { defaultPoolId: uuid(3, 1), ...listener })],
    pools: [aPool(1, { healthMonitor: monitor, members: [aMember(1), aMember(2)], ...pool })],
    ...tree,
  })
const probes =
  (first: ProbeStatus, second: ProbeStatus) =>
  (_pool: unknown, { id }: { id: string }): ProbeStatus =>
    id === uuid(4, 1) ? first : second

t.test('members are what OVN’s probes see', async t => {
  const { listeners, pools, members } = reportedByOvn(scene(), probes('online', 'offline'))
  t.same([...listeners.values()], ['OPEN'])
  t.same([...pools.values()], ['UP'])
  t.same([...members.values()], ['UP', 'DOWN'])
  t.same([...reportedByOvn(scene(), probes('error', null)).members.values()], ['DOWN', 'UNKNOWN'])
})

t.test('a pool is down once no member takes traffic', async t => {
  const state = (first: ProbeStatus, second: ProbeStatus, pool = {}) =>
    [...reportedByOvn(scene({ tree: {}, listener: {}, pool }), probes(first, second)).pools.values()][0]
  t.equal(state('offline', 'offline'), 'DOWN')
  t.equal(state('offline', null), 'UP', 'one may be up')
  t.equal(
    state('online', 'online', { members: [aMember(1, { weight: 0 }), aMember(2, { adminStateUp: false })] }),
    'DOWN',
  )
  t.equal(state('online', 'online', { members: [] }), 'UP')
})

t.test('without a monitor that is enabled, nobody knows how members are', async t => {
  for (const healthMonitor of [null, { ...monitor, adminStateUp: false }, { ...monitor, change: 'delete' as const }]) {
    const { members } = reportedByOvn(
      scene({ tree: {}, listener: {}, pool: { healthMonitor } }),
      probes('offline', 'offline'),
    )
    t.same([...members.values()], ['NO_CHECK', 'NO_CHECK'])
  }
  t.same([...reportedByOvn(scene(), probes(undefined, 'online')).members.values()], ['NO_CHECK', 'UP'])
})

t.test('a drained member is drained, a disabled one disabled, whatever probes see', async t => {
  const pool = { members: [aMember(1, { weight: 0 }), aMember(2, { adminStateUp: false })] }
  t.same(
    [...reportedByOvn(scene({ tree: {}, listener: {}, pool }), probes('online', 'online')).members.values()],
    ['DRAIN', 'MAINT'],
  )
})

t.test('what no enabled listener uses is not reported', async t => {
  for (const change of [
    { tree: { adminStateUp: false } },
    { listener: { adminStateUp: false } },
    { pool: { adminStateUp: false } },
  ]) {
    const { pools, members } = reportedByOvn(
      scene({ tree: {}, listener: {}, pool: {}, ...change }),
      probes('online', 'online'),
    )
    t.same([pools.size, members.size], [0, 0])
  }
})
