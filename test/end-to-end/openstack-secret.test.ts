import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openstackSession, openstackSessionIn, unused } from '../support/clients/openstack-session.js'
import { NOOP_DRIVERS, startKrater } from '../support/worlds/krater.js'
import { acls } from './openstack-secret/acls.js'
import { authorities } from './openstack-secret/authorities.js'
import { containers } from './openstack-secret/containers.js'
import { executable } from './openstack-secret/executable.js'
import { useLibraries } from './openstack-secret/libraries.js'
import { newcomer } from './openstack-secret/newcomer.js'
import { orders } from './openstack-secret/orders.js'
import { requests } from './openstack-secret/requests.js'
import { rights } from './openstack-secret/rights.js'
import type { Scene } from './openstack-secret/scene.js'
import { secrets } from './openstack-secret/secrets.js'

t.test('the real clients of the key manager', async t => {
  t.setTimeout(1_100_000)
  const directory = mkdtempSync(join(tmpdir(), 'openstack-secret-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const krater = await startKrater(t, NOOP_DRIVERS)
  const administrator = await krater.api('krater-admin')
  const stranger = await newcomer(administrator, 'stranger')
  const library = await newcomer(administrator, 'library')
  // The libraries have their own project, so they run alongside all cases.
  const libraries = useLibraries(library.environment)
  const scene: Scene = {
    krater,
    administrator,
    member: openstackSession(t, krater, 'krater'),
    admin: openstackSession(t, krater, 'krater-admin'),
    stranger: openstackSessionIn(t, stranger.environment),
    strangerId: stranger.userId,
    strangerProjectId: stranger.projectId,
    file: (name, content) => {
      const path = join(directory, name)
      writeFileSync(path, content)
      return path
    },
  }
  const chapter = (name: string, cases: (t: Test, scene: Scene) => Promise<void>) =>
    t.test(name, async t => cases(t, scene))

  await chapter('secrets', secrets)
  await chapter('orders', orders)
  await chapter('containers', containers)
  await chapter('ACLs', acls)
  await chapter('rights and quotas', rights)
  await chapter('certificate authorities', authorities)
  await chapter('the executable', executable)
  await t.test('gophercloud’s requests', async t => requests(t, administrator))

  await t.test('every command of the plugin was used', async t => {
    const commands = await scene.member.describe('openstack.key_manager.v1')
    t.ok(Object.keys(commands).length >= 20)
    t.same(unused(commands, [...scene.member.runs, ...scene.stranger.runs, ...scene.admin.runs]), [])
  })

  await t.test('python-barbicanclient, Castellan and openstacksdk', async t => {
    const { findings, failure } = await libraries
    for (const { name, got, expected } of findings) t.strictSame(got, expected, name)
    t.equal(failure, '', 'the script finished')
    t.equal(findings.at(-1)?.name, 'methods that nothing above calls')
  })
})
