import t, { type Test } from 'tap'
import { openstackSession, unused } from '../support/clients/openstack-session.js'
import { NOOP_DRIVERS, startKrater } from '../support/worlds/krater.js'
import { amphorae } from './openstack-loadbalancer/amphorae.js'
import { availabilityZones } from './openstack-loadbalancer/availability-zones.js'
import { busy } from './openstack-loadbalancer/busy.js'
import { executable } from './openstack-loadbalancer/executable.js'
import { flavors } from './openstack-loadbalancer/flavors.js'
import { healthMonitors } from './openstack-loadbalancer/health-monitors.js'
import { l7 } from './openstack-loadbalancer/l7.js'
import { listeners } from './openstack-loadbalancer/listeners.js'
import { loadBalancers } from './openstack-loadbalancer/load-balancers.js'
import { members } from './openstack-loadbalancer/members.js'
import { pools } from './openstack-loadbalancer/pools.js'
import { quotas } from './openstack-loadbalancer/quotas.js'
import type { Scene } from './openstack-loadbalancer/scene.js'

/** Commands that the client itself cannot execute. */
const BROKEN_IN_THE_CLIENT = [
  // It fetches the new rule with the ids of policy and rule swapped.
  'loadbalancer l7rule create --wait',
]

t.test('every command of the load balancer plugin, with every option', async t => {
  t.setTimeout(1_100_000)
  const krater = await startKrater(t, NOOP_DRIVERS)
  const scene: Scene = {
    krater,
    member: openstackSession(t, krater, 'krater'),
    admin: openstackSession(t, krater, 'krater-admin'),
  }
  const chapter = (name: string, cases: (t: Test, scene: Scene) => Promise<void>) =>
    t.test(name, async t => cases(t, scene))

  await chapter('load balancers', loadBalancers)
  await chapter('listeners', listeners)
  await chapter('pools', pools)
  await chapter('members', members)
  await chapter('health monitors', healthMonitors)
  await chapter('L7 policies and rules', l7)
  await chapter('quotas', quotas)
  await chapter('providers, flavor profiles and flavors', flavors)
  await chapter('availability zones and their profiles', availabilityZones)
  await chapter('amphorae and failover', amphorae)
  await chapter('the executable', executable)
  await chapter('while a change is pending', busy)

  const commands = await scene.admin.describe('openstack.load_balancer.v2')
  const left = unused(commands, [...scene.member.runs, ...scene.admin.runs])
  t.same(
    left.filter(name => !BROKEN_IN_THE_CLIENT.includes(name)),
    [],
    'every command of the plugin was used',
  )
})
