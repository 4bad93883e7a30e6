import fc from 'fast-check'
import t from 'tap'
import { imageFindings } from '../../../controller/cli/commands/doctor/compute.js'
import {
  namedDrivers,
  type PlacementRequest,
  type PlacementRules,
  placementOf,
  placementRules,
  resolvePlacement,
} from '../../../controller/compute/placement.js'
import { parseConfiguration } from '../../../controller/config/load.js'
import { rulesOf } from '../../support/inputs/placement.js'

const SETTINGS = {
  amphora_memory: 512,
  amphora_processors: 1.5,
  warm_amphorae: 2,
  flavors: {
    large: { driver: 'namespace', memory: 4096, cores: 4, warm: 3 },
    small: { driver: 'namespace' },
  },
  zones: { one: { driver: 'namespace' }, two: {} },
}
const rules = rulesOf(SETTINGS)
const NOTHING: PlacementRequest = { flavor: null, zone: null, imageTag: null }

t.test('a placement follows the flavor, then the driver of the zone, then the settings', async t => {
  const namespace = { driver: 'namespace', zone: null, imageTag: null }
  const cases: [Partial<PlacementRequest>, object][] = [
    [{}, { placement: { ...namespace, flavor: 'namespace', memoryMiB: 512, cores: 1.5 } }],
    [{ flavor: 'large' }, { placement: { ...namespace, flavor: 'large', memoryMiB: 4096, cores: 4 } }],
    [{ flavor: 'small' }, { placement: { ...namespace, flavor: 'small', memoryMiB: 512, cores: 1.5 } }],
    [{ zone: 'one' }, { placement: { flavor: 'namespace', zone: 'one' } }],
    [{ zone: 'two', flavor: 'large' }, { placement: { flavor: 'large', zone: 'two' } }],
    [{ flavor: 'huge' }, { problem: /^There is no compute flavor huge, only namespace,.* large, small\.$/ }],
    [{ zone: 'three' }, { problem: /^There is no compute zone three, only local, one, two\.$/ }],
  ]
  for (const [request, expected] of cases) {
    t.match(resolvePlacement(rules, { ...NOTHING, ...request }), expected, JSON.stringify(request))
  }
})

t.test('with the noop driver, anything goes', async t => {
  const request = { flavor: 'huge', zone: 'mars', imageTag: 'beta' }
  t.match(resolvePlacement(rulesOf({ ...SETTINGS, driver: 'noop' }), request), {
    placement: { driver: 'noop', flavor: 'huge', zone: 'mars', imageTag: 'beta' },
  })
})

t.test('whatever is asked, the answer is a placement of the flavor asked for, or a sentence', async t => {
  const name = fc.option(fc.constantFrom('namespace', 'large', 'small', 'huge', 'local', 'one', 'two', 'three', ''))
  fc.assert(
    fc.property(name, name, name, (flavor, zone, imageTag) => {
      const resolved = resolvePlacement(rules, { flavor, zone, imageTag })
      if ('problem' in resolved) return /^[A-Z].*\.$/.test(resolved.problem)
      const { placement } = resolved
      return (
        rules.flavors.get(placement.flavor)?.driver === placement.driver &&
        (flavor === null || placement.flavor === flavor) &&
        placement.zone === zone
      )
    }),
  )
  t.pass('held')
})

t.test('an amphora keeps its driver and flavor, and has the size that the flavor has today', async t => {
  const recorded = { driver: 'namespace', flavor: 'large', zone: 'local', imageTag: null }
  t.same(placementOf(rules, recorded), { ...recorded, memoryMiB: 4096, cores: 4 })
  t.same(placementOf(rules, { ...recorded, flavor: 'gone' }), {
    ...recorded,
    flavor: 'gone',
    memoryMiB: 512,
    cores: 1.5,
  })
  t.match(placementOf(rules, { ...recorded, driver: 'gone' }), { driver: 'gone', memoryMiB: null, cores: null })
})

t.test('amphorae are kept ready of the standard flavor and of those that say so', async t => {
  const warm = [...rules.flavors].map(([name, flavor]) => [name, flavor.warm]).filter(([, count]) => count !== 0)
  t.same(warm, [
    ['namespace', 2],
    ['large', 3],
  ])
})

t.test('the tables of flavors and zones are checked, and may be JSON in the environment', async t => {
  const flavors = (text: string, environment = {}) => parseConfiguration(`compute:\n  ${text}`, environment).compute
  t.match(placementRules(flavors('flavors: {big: {driver: namespace, memory: 1024}}')).flavors.get('big'), {
    memoryMiB: 1024,
  })
  const variable = { KRATER_COMPUTE_FLAVORS: '{"tiny": {"driver": "namespace", "memory": 256}}' }
  t.match(flavors('driver: namespace', variable).flavors, { tiny: { memory: 256 } })
  const wrong: [string, RegExp][] = [
    ['flavors: {big: {memory: 1024}}', /compute\.flavors: .* with its driver, memory and cores \(big\.driver: /],
    ['flavors: {big: {driver: noop}}', /big\.driver: /],
    ['flavors: {big: {driver: namespace, memory: 1}}', /big\.memory: /],
    ['flavors: {big: {driver: qemu, memory: 128}}', /big: a virtual machine needs at least 192 MiB of memory/],
    ['flavors: {big: {driver: qemu, cores: 65}}', /big: a virtual machine has at most 64 cores/],
    ['flavors: {big: {driver: namespace, ram: 1}}', /big: .*ram/],
    ['flavors: {"a b": {driver: namespace}}', /the name a b must have letters/],
    ['flavors: large', /compute\.flavors: "large"/],
    ['zones: {here: {driver: mars}}', /compute\.zones: .* \(here\.driver: /],
  ]
  for (const [text, message] of wrong) t.throws(() => flavors(text), { message }, text)
})

t.test('the doctor names flavors whose image is not there', async t => {
  const size = { memoryMiB: 256, cores: 1 }
  const boots = {
    offers: { flavors: [], zones: [] },
    images: 'required',
    ownsManagement: false,
    startSeconds: 30,
    size,
  } as const
  const machine = { driver: 'machine', ...size, imageTag: null, warm: 0 }
  const both: PlacementRules = {
    ...rules,
    drivers: new Map([...rules.drivers, ['machine', boots]]),
    flavors: new Map([...rules.flavors, ['vm', machine], ['old', { ...machine, imageTag: 'old' }]]),
  }
  const drivers = new Set(['namespace', 'machine'])
  const texts = (tags: string[], named = drivers) =>
    imageFindings(both, named, tags).map(({ state, text }) => `${state} ${text}`)
  t.same(texts([]), [
    'fault Machines of the compute flavor vm run the amphora image with the tag amphora, but there is none at all',
    'fault Machines of the compute flavor old run the amphora image with the tag old, but there is none at all',
  ])
  t.match(texts(['amphora']), [/^fault .* flavor old .* only amphora$/])
  t.match(texts(['amphora', 'old']), [/^ok .* amphora, old$/])
  t.same(texts([], new Set(['namespace'])), [], 'a driver that nothing names needs no image')
})

t.test('the doctor checks the drivers that the settings name', async t => {
  const named = (compute: string) =>
    namedDrivers(parseConfiguration(`compute: ${compute}`, {}).compute).map(({ name }) => name)
  t.same(named('{}'), ['namespace'])
  t.same(named('{flavors: {a: {driver: namespace}}, zones: {b: {driver: namespace}, c: {}}}'), ['namespace'])
  t.same(named('{driver: noop, flavors: {a: {driver: namespace}}}'), ['noop'])
})
