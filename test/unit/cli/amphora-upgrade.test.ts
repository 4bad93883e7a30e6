import t from 'tap'
import { agentLines } from '../../../controller/cli/commands/amphora/agent-summary.js'
import {
  type Candidate,
  judgeProgress,
  nextUpgrades,
  type Progress,
  planUpgrade,
  type Upgrade,
} from '../../../controller/cli/commands/amphora/upgrade/plan-upgrade.js'

const [OLD, NEW] = ['0'.repeat(64), '1'.repeat(64)]

let lastNumber = 0
const amphora = (change: Partial<Candidate> = {}): Candidate => {
  lastNumber += 1
  return {
    id: `amphora-${lastNumber}`,
    status: 'ALLOCATED',
    loadBalancerId: `balancer-${lastNumber}`,
    loadBalancerName: 'web',
    holdsVip: false,
    replaceGeneration: null,
    agentVersion: '0.1.0',
    agentBundle: OLD,
    upgradeTo: null,
    driver: 'qemu',
    imageTag: null,
    imageId: 'image-1',
    elsewhere: null,
    ...change,
  }
}
const plan = (candidates: readonly Candidate[], newestImage: string | null = 'image-1') =>
  planUpgrade(candidates, { bundle: NEW, newestImage: () => newestImage })
const waysOf = (candidates: readonly Candidate[], newestImage?: string | null) =>
  plan(candidates, newestImage).upgrades.map(({ way }) => way)

t.test('the summary of all agents', t => {
  const counts = { bundle: NEW, current: 0, others: 0, older: 0, upgrading: 0, failure: null }
  t.same(agentLines(counts), ['No agent of an amphora has been heard yet.'])
  t.same(agentLines({ ...counts, current: 1 }), ['1 amphora has the agent of this version (11111111).'])
  const failure = { amphora: 'amphora-1', text: 'It died.' }
  t.same(agentLines({ ...counts, current: 2, others: 3, older: 1, upgrading: 1, failure }), [
    '2 amphorae have the agent of this version (11111111), 3 another one, 1 one that cannot be upgraded in place, 1 being upgraded. `krater amphora upgrade --dry-run` says more.',
    'The agent of amphora amphora-1 was not upgraded: It died.',
  ])
  t.end()
})

t.test('which way an amphora is upgraded', t => {
  t.same(waysOf([amphora()]), ['in place'], 'only its agent is another')
  t.same(waysOf([amphora()], 'image-2'), ['replace'], 'its image is another')
  t.same(waysOf([amphora({ imageId: null })]), ['replace'], 'it runs no image, and a new one would')
  t.same(waysOf([amphora({ imageId: null })], null), ['in place'], 'there is no image')
  t.same(waysOf([amphora({ agentBundle: NEW, imageId: null })], null), [])
  t.same(waysOf([amphora({ agentBundle: null })], null), ['replace'], 'its agent knows nothing of upgrades')
  t.same(waysOf([amphora({ agentBundle: NEW, replaceGeneration: 7 })]), ['replace'], 'the replacement has begun before')
  t.same(waysOf([amphora({ status: 'BOOTING', upgradeTo: NEW, loadBalancerId: null })]), ['in place'])
  for (const status of ['BOOTING', 'PENDING_DELETE', 'ERROR']) t.same(waysOf([amphora({ status })]), [], status)
  t.end()
})

t.test('who is left alone, and why', t => {
  const { left, upgrades } = plan([amphora({ agentBundle: null }), amphora({ agentBundle: null, agentVersion: null })])
  t.same(upgrades, [])
  t.match(left, [{ why: /newest image of qemu has the same/ }, { why: /not been asked yet/ }])
  t.end()
})

t.test('amphorae of other hosts are only counted: their hosts have other images', t => {
  const outdated = { imageId: 'image-0' }
  const { upgrades, current, left, elsewhere } = plan([
    amphora({ ...outdated, elsewhere: 'two' }),
    amphora({ elsewhere: 'two', agentBundle: NEW }),
    amphora({ ...outdated, elsewhere: 'three' }),
    amphora({ ...outdated, elsewhere: 'two', status: 'PENDING_DELETE' }),
    amphora(outdated),
  ])
  t.match([upgrades, current, left], [[{ way: 'replace' }], [], []])
  t.same(
    elsewhere,
    new Map([
      ['two', 2],
      ['three', 1],
    ]),
  )
  t.end()
})

t.test('the order: the warm pool, those without a VIP, those with one', t => {
  const [holder, other, warm] = [
    amphora({ holdsVip: true }),
    amphora(),
    amphora({ loadBalancerId: null, status: 'READY' }),
  ]
  t.same(
    plan([holder, other, warm]).upgrades.map(upgrade => upgrade.amphora.id),
    [warm.id, other.id, holder.id],
  )
  t.end()
})

t.test('a few begin at a time, and never two of one load balancer', t => {
  const [one, two] = [amphora({ loadBalancerId: 'pair' }), amphora({ loadBalancerId: 'pair', holdsVip: true })]
  const [warm, warmToo] = [
    amphora({ loadBalancerId: null, status: 'READY' }),
    amphora({ loadBalancerId: null, status: 'READY' }),
  ]
  const upgrades = plan([one, two, warm, warmToo, amphora()]).upgrades
  const idsOf = (some: readonly Upgrade[]) => some.map(upgrade => upgrade.amphora.id)
  t.same(idsOf(nextUpgrades(upgrades, [], 3)), [warm.id, warmToo.id, one.id])
  t.same(idsOf(nextUpgrades(upgrades, [], 9)).includes(two.id), false)
  const running = upgrades.filter(upgrade => upgrade.amphora === one)
  t.same(idsOf(nextUpgrades([...plan([two]).upgrades], running, 9)), [])
  t.same(idsOf(nextUpgrades([...plan([two]).upgrades], [], 9)), [two.id])
  t.same(nextUpgrades(upgrades, running, 1), [])
  t.end()
})

t.test('when an upgrade has ended', t => {
  const nothing: Progress = {
    status: 'ALLOCATED',
    agentBundle: OLD,
    upgradeTo: null,
    upgradeFault: null,
    appliedGeneration: 6,
    faultGeneration: null,
    faultText: null,
  }
  const judged = (way: Upgrade['way'], change: Partial<Progress>) =>
    judgeProgress({ amphora: amphora(), way, why: '' }, way === 'replace' ? 7 : null, { ...nothing, ...change }, NEW)
  t.equal(judged('in place', { upgradeTo: NEW }), 'under way')
  t.equal(judged('in place', { agentBundle: NEW }), 'done')
  t.equal(judged('in place', { agentBundle: NEW, status: 'BOOTING' }), 'under way', 'not ready yet')
  t.equal(judged('in place', { status: null }), 'done', 'it is gone')
  t.same(judged('in place', { upgradeFault: { bundle: NEW, text: 'It died.' } }), { failed: 'It died.' })
  t.equal(judged('in place', { upgradeFault: { bundle: OLD, text: 'It died.' }, upgradeTo: NEW }), 'under way')
  t.equal(judged('replace', {}), 'under way')
  t.equal(judged('replace', { status: 'PENDING_DELETE' }), 'under way', 'its successor is not configured')
  t.equal(judged('replace', { status: 'PENDING_DELETE', appliedGeneration: 7 }), 'done', 'it drains')
  t.equal(judged('replace', { status: null, appliedGeneration: null }), 'done', 'so is its load balancer')
  t.same(judged('replace', { faultGeneration: 7, faultText: 'No address is left.' }), { failed: 'No address is left.' })
  t.equal(judged('replace', { faultGeneration: 6, faultText: 'No address is left.' }), 'under way', 'an earlier fault')
  t.end()
})
