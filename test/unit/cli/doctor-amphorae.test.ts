import t from 'tap'
import type { AmphoraRow } from '../../../controller/cli/commands/amphora/rows.js'
import { byHost, machineLack } from '../../../controller/cli/commands/doctor/amphorae.js'

const ROW: AmphoraRow = {
  ...{ id: 'a1', status: 'ALLOCATED', role: 'STANDALONE', loadBalancerId: 'lb', loadBalancerName: 'web' },
  ...{ address: '192.0.2.7', vrrpIp: null, appliedGeneration: 1, desiredGeneration: 1, createdAt: new Date(0) },
  ...{ silentFor: 1, vrrpMaster: true, haproxyRunning: true, driver: 'namespace', hostId: 'one', flavor: null },
  ...{ zone: null, imageTag: null, imageId: null, agentVersion: null, agentBundle: null },
}

t.test('the doctor looks for the machines that this host has', async t => {
  const running = [{ amphoraId: 'a1', state: 'running' as const }]
  t.equal(machineLack(ROW, 'namespace', running), null)
  t.match(machineLack(ROW, 'namespace', []), /missing/)
  t.match(machineLack(ROW, 'namespace', [{ amphoraId: 'a1', state: 'stopped' }]), /stopped/)
  t.match(machineLack({ ...ROW, driver: null }, 'namespace', []), /missing/)
  t.equal(machineLack({ ...ROW, driver: 'enrolled' }, 'namespace', []), null, 'that of an enrolled host is the host')
  t.equal(machineLack({ ...ROW, driver: null }, 'enrolled', []), null)

  const [free, other] = [
    { ...ROW, id: 'a2', hostId: null },
    { ...ROW, id: 'a3', hostId: 'two' },
  ]
  t.same(byHost([ROW, free], 'one'), { here: [ROW, free], elsewhere: [] })
  const { here, elsewhere } = byHost([ROW, free, other], 'one')
  t.same(here, [ROW, free])
  t.match(elsewhere, [{ state: 'note', text: /^1 belongs to other controller hosts/ }])
})
