import t from 'tap'
import { ProbeIndex, placeOf } from '../../../../controller/provider/ovn/health/probe-index.js'

const probe = (port: number, status: string | null, more: object = {}) => ({
  ...{ ip: '10.0.0.1', port, protocol: 'tcp', logical_port: 'one', src_ip: '10.0.0.9', status, options: {} },
  ...more,
})
const at = (port: number) => placeOf('10.0.0.1', port)
const changed = (uuid: string, before: ReturnType<typeof probe> | null, after: ReturnType<typeof probe> | null) => ({
  ...{ table: 'Service_Monitor', uuid, before, after },
})

t.test('a probe is found by its logical port, place and protocol', async t => {
  const probes = new ProbeIndex(
    new Map([
      ['a', probe(80, 'online')],
      ['b', probe(80, 'offline', { protocol: 'udp' })],
      ['c', probe(81, null, { protocol: null })],
      ['d', probe(80, 'error', { logical_port: 'two' })],
    ]),
  )
  t.equal(probes.statusAt(at(80), 'tcp', 'one'), 'online')
  t.equal(probes.statusAt(at(80), 'udp', 'one'), 'offline')
  t.equal(probes.statusAt(at(81), 'tcp', 'one'), null, 'it says nothing yet')
  t.equal(probes.statusAt(at(82), 'tcp', 'one'), undefined)
  t.equal(probes.statusAt(at(80), 'tcp', 'two'), 'error', 'the same address in the network of somebody else')
  t.equal(probes.statusAt(at(80), 'tcp', 'three'), undefined)
})

t.test('it follows changes, and says where', async t => {
  const probes = new ProbeIndex(new Map())
  t.same([...probes.follow([changed('a', null, probe(80, null))])], [at(80)])
  t.same([...probes.follow([changed('a', probe(80, null), probe(80, 'offline'))])], [at(80)])
  t.equal(probes.statusAt(at(80), 'tcp', 'one'), 'offline')
  t.same([...probes.follow([changed('a', probe(80, 'offline'), probe(90, 'online'))])], [at(80), at(90)])
  t.equal(probes.statusAt(at(80), 'tcp', 'one'), undefined)
  t.equal(probes.statusAt(at(90), 'tcp', 'one'), 'online')
  probes.follow([changed('a', probe(90, 'online'), null)])
  t.equal(probes.statusAt(at(90), 'tcp', 'one'), undefined)
  t.same([...probes.follow([{ table: 'Chassis', uuid: 'x', before: null, after: {} }])], [])
})

t.test('what a change costs does not grow with the number of probes', async t => {
  let looks = 0
  const counted = (port: number) => ({
    ...probe(port, 'online'),
    get ip() {
      looks += 1
      return '10.0.0.1'
    },
  })
  const probes = new ProbeIndex(new Map(Array.from({ length: 50_000 }, (_, n) => [String(n), counted(n)])))
  looks = 0
  probes.follow([changed('7', probe(7, 'online'), probe(7, 'offline'))])
  t.equal(probes.statusAt(at(7), 'tcp', 'one'), 'offline')
  t.equal(looks, 0, 'no other probe is looked at')
})
